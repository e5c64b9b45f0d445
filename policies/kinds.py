"""The record of a registered policy, the registry by name, and the choice of settings for a policy.

This project's policies are in ``policies.registry``; those of plug-ins are loaded on request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from contracts.plugins import Parameter, Registry
from controller.detect.detector import Detector
from controller.detect.registry import detector_kind
from controller.fleet import FleetSetup
from controller.options import ShieldLimits
from controller.ports import Policy
from policies.spec import EXAMPLE, Settings, Value, parse_spec

Factory = Callable[[FleetSetup, str, Settings], Policy]
Watch = Callable[[FleetSetup, Settings], Detector]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyKind:
    """One registered policy: parameters with their defaults, and its configuration.

    parameters: numbers; texts: parameters that are text, for example a file; limits: of its shield. detector:
    makes the configuration's detector. None: completed windows, with the contract's length and least number
    of observations, or with ``window_s`` and ``min_samples`` if the configuration has them and they are not
    0.
    """

    factory: Factory
    parameters: Mapping[str, Parameter]
    quarantine: bool
    shield: bool
    description: str
    detector: Watch | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    limits: ShieldLimits = field(default_factory=ShieldLimits)


#: Every policy by name: this project's from ``policies.registry``, a plug-in's after it was requested.
POLICIES: Registry[PolicyKind] = Registry("selvage_fleet.policies")


def chosen_settings(spec: str, parameters: Mapping[str, Value]) -> tuple[str, dict[str, Value]]:
    """Name and given parameters; ValueError for a parameter that the policy does not have."""
    name, values = parse_spec(spec)
    chosen = {**values, **parameters}
    policy = policy_kind(name, chosen)
    known = {*policy.parameters, *policy.texts}
    unknown = sorted(set(chosen) - known)
    if unknown:
        names = ", ".join(sorted(known)) or "none"
        raise ValueError(f"policy {name!r}: unknown parameter {unknown[0]!r}; known: {names}")
    for parameter, value in chosen.items():
        if parameter in policy.parameters:
            _check_range(name, parameter, policy.parameters[parameter], value)
    return name, chosen


def _check_range(policy: str, name: str, parameter: Parameter, value: Value) -> None:
    if isinstance(value, str):
        raise ValueError(
            f"policy {policy!r}: expected key=number, got '{name}={value}'; write e.g. {EXAMPLE}"
        )
    if not parameter.allows(value):
        raise ValueError(f"policy {policy!r}: {name}: expected {parameter.expected}, got {value:g}")


def policy_kind(name: str, chosen: Mapping[str, Value]) -> PolicyKind:
    """The policy ``name``, with the registered detector that ``chosen`` may name."""
    if name not in POLICIES:
        raise ValueError(f"unknown policy {name!r}; known: {', '.join(POLICIES.known())}")
    policy, detector = POLICIES[name], chosen.get("detector")
    if detector is None:
        return policy
    kind = detector_kind(str(detector))
    return replace(
        policy,
        parameters={**policy.parameters, **kind.parameters},
        texts={**policy.texts, "detector": ""},
        detector=lambda fleet, values: kind.make(fleet, values.numbers),
    )


def settings_of(policy: PolicyKind, chosen: Mapping[str, Value]) -> Settings:
    """Every parameter of ``policy``: as chosen, or else its default."""
    numbers = {name: float(chosen.get(name, one.default)) for name, one in policy.parameters.items()}
    texts = {name: str(chosen.get(name, default)) for name, default in policy.texts.items()}
    return Settings(numbers=numbers, texts=texts)
