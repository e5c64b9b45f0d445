"""Registry of the policies without learning: name to factory, and the text form used by sweeps.

``make_policy("hysteresis:dwell_s=120,step_ratio=0.25", fleet)`` parses name and parameters. ``make_arm``
gives the policy together with the controller options under which E5 runs it: an arm says which levers work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from math import isfinite
from pathlib import Path

import numpy as np

from contracts.detect.clauses import plan_clauses
from contracts.detect.traffic import SHIPPED as SHIPPED_TRAFFIC
from contracts.detect.traffic import TrafficCalibration, parse_traffic
from contracts.files import sha256_of
from contracts.uris import resolve_uri
from controller.detectors import Detector, WindowDetector
from controller.ports import Policy
from controller.sequential import SequentialDetector
from controller.sequential_plan import sequential_plan
from controller.setup import ControllerOptions, ControllerSetup, FleetSetup
from policies.breaker import BreakerPolicy
from policies.burn_rate import BurnRateDetector
from policies.capacity import Headroom
from policies.fixed import FixedPolicy
from policies.hysteresis import HysteresisPolicy, Pace
from policies.informed import InformedPolicy, Notices, no_notices
from policies.linear_program import LinearProgramPolicy, numeric_limit
from policies.program import Costs
from policies.shield_alone import UniformPolicy
from policies.spec import EXAMPLE, Settings, Value, parse_spec, write_spec
from policies.threshold import ThresholdPolicy

Factory = Callable[[FleetSetup, str, Settings], Policy]
Watch = Callable[[FleetSetup, Settings], Detector]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """One registered policy: parameters with their defaults, and its arm.

    parameters: numbers; texts: the parameters that are text, for example a file.
    detector: makes the arm's detector; None: completed windows, of the contract's length and least number
    of units, or of ``window_s`` and ``min_samples`` where the arm takes them and they are not 0.
    """

    factory: Factory
    parameters: Mapping[str, float]
    quarantine: bool
    shield: bool
    description: str
    detector: Watch | None = None
    texts: Mapping[str, str] = field(default_factory=dict)


def _fixed(fleet: FleetSetup, policy_id: str, values: Settings) -> Policy:  # noqa: ARG001
    return FixedPolicy(policy_id=policy_id)


def _threshold(fleet: FleetSetup, policy_id: str, values: Settings) -> Policy:
    kernels, slices, _ = fleet.layout.shape
    return ThresholdPolicy(
        policy_id=policy_id,
        kernels=kernels,
        slices=slices,
        priority=fleet.contract.priority,
        shed_when_uncertified=fleet.contract.shed_when_uncertified,
        guard_share=values["guard_share"],
        headroom=_headroom(values),
    )


def _hysteresis(fleet: FleetSetup, policy_id: str, values: Settings) -> Policy:
    kernels, slices, _ = fleet.layout.shape
    return HysteresisPolicy(
        policy_id=policy_id,
        kernels=kernels,
        slices=slices,
        priority=fleet.contract.priority,
        shed_when_uncertified=fleet.contract.shed_when_uncertified,
        pace=Pace(**{name: values[name] for name in _PACE}),
        headroom=_headroom(values),
    )


def _linear_program(fleet: FleetSetup, policy_id: str, values: Settings) -> Policy:
    kernels, slices, _ = fleet.layout.shape
    loss = np.zeros((kernels, slices)) if fleet.quality_loss is None else fleet.quality_loss
    return LinearProgramPolicy(
        policy_id=policy_id,
        healthy_loss=loss,
        limit=numeric_limit(fleet.contract, fleet.layout.probe_metrics),
        priority=fleet.contract.priority,
        shed_when_uncertified=fleet.contract.shed_when_uncertified,
        costs=Costs(**{name: values[name] for name in _COSTS}),
        **{name: values[name] for name in _PROGRAM},
    )


def _informed(fleet: FleetSetup, policy_id: str, values: Settings) -> Policy:
    kernels, slices, _ = fleet.layout.shape
    make = _linear_program if values["program"] > 0.0 else _threshold
    return InformedPolicy(
        policy_id=policy_id,
        notices=no_notices(slices) if values.notices is None else values.notices,
        planner=make(fleet, policy_id, values),
        kernels=kernels,
        slices=slices,
    )


def _learned(fleet: FleetSetup, policy_id: str, values: Settings) -> Policy:
    # Only who runs a learned policy needs onnxruntime.
    from policies.artifact_files import load_learned
    from policies.learned import learned_policy

    onnx = values.text("onnx")
    if onnx:
        return learned_policy(Path(onnx).read_bytes(), fleet, policy_id, onnx)
    return load_learned(values.text("artefact"), fleet, policy_id)


def _breaker(fleet: FleetSetup, policy_id: str, values: Settings) -> Policy:
    count = int(values["consecutive_failures"])
    rest = {name: value for name, value in values.numbers.items() if name != "consecutive_failures"}
    return BreakerPolicy(
        policy_id=policy_id, replicas=len(fleet.layout.replicas), consecutive_failures=count, **rest
    )


def _uniform(fleet: FleetSetup, policy_id: str, values: Settings) -> Policy:  # noqa: ARG001
    return UniformPolicy(policy_id=policy_id)


def _sequential(fleet: FleetSetup, values: Settings) -> Detector:
    plan = sequential_plan(
        fleet, budget_per_slice_month=values["budget"] or None, confidence=values["confidence"],
        traffic_factor=values["traffic_factor"] or TRAFFIC_FACTOR, suspect_arl0=values["suspect_arl0"],
        spread=values["spread"] > 0.0, paired=values["paired"] > 0.0, prior=values["prior"] > 0.0,
        traffic=None if values["traffic_factor"] > 0.0 else shipped_traffic(),
    )  # fmt: skip
    return SequentialDetector(plan=plan)


@lru_cache(maxsize=1)
def shipped_traffic() -> TrafficCalibration:
    """Calibrated thresholds of traffic clauses, as they ship; ``traffic_factor`` above 0 does without."""
    file = resolve_uri(SHIPPED_TRAFFIC, "selvage")
    return parse_traffic(file.read_text(), str(file))


def _burn_rate(fleet: FleetSetup, values: Settings) -> Detector:
    return BurnRateDetector(
        clauses=plan_clauses(fleet.contract),
        hour_s=values["hour_s"] or fleet.contract.window_s,
        least_units=values["least_units"],
    )


def _headroom(values: Settings) -> Headroom:
    return Headroom(**{name: values[name] for name in _HEADROOM})


_HEADROOM = {"fill_ratio": 0.9, "return_ratio": 0.75, "replan_s": 30.0}
_PACE = {
    "guard_share": 1.0,
    "dwell_s": 120.0,
    "first_ratio": 0.1,
    "step_ratio": 0.3,
    "step_s": 30.0,
    "readmit_every_s": 30.0,
}
_WINDOW = {"window_s": 0.0, "min_samples": 0.0}
#: Of clauses on traffic that no healthy law is known of. Stated, not calibrated: see docs/detection.md.
TRAFFIC_FACTOR = 14.0
_SEQUENTIAL = {
    "budget": 0.0,
    "confidence": 0.95,
    "traffic_factor": 0.0,
    "suspect_arl0": 1000.0,
    "spread": 1.0,
    "paired": 1.0,
    "prior": 0.0,
}
_COSTS = {
    "capacity": 0.01,
    "away": 0.02,
    "move": 0.005,
    "overload": 0.2,
    "fill_ratio": 0.9,
}
_PROGRAM = {"dwell_s": 60.0, "suspicion": 0.0, "load_tolerance": 0.15, "replan_s": 30.0}
_BREAKER = {
    "consecutive_failures": 5.0,
    "interval_s": 10.0,
    "base_ejection_s": 30.0,
    "max_ejection_s": 300.0,
    "max_ejection_ratio": 0.1,
    "panic_ratio": 0.5,
}

#: Every baseline by name.
BASELINES: Mapping[str, Baseline] = {
    "fixed-bare": Baseline(
        factory=_fixed,
        parameters={},
        quarantine=False,
        shield=False,
        description="home kernel, no lever at all",
    ),
    "fixed": Baseline(
        factory=_fixed,
        parameters={},
        quarantine=True,
        shield=False,
        description="home kernel, single replicas quarantined",
    ),
    "breaker": Baseline(
        factory=_breaker,
        parameters=_BREAKER,
        quarantine=False,
        shield=False,
        description="home kernel, replicas ejected for HTTP failures as Envoy does by default",
    ),
    "shield-alone": Baseline(
        factory=_uniform,
        parameters={},
        quarantine=False,
        shield=True,
        description="uniform proposals, shielded",
    ),
    "hysteresis": Baseline(
        factory=_hysteresis,
        parameters={**_PACE, **_HEADROOM, **_WINDOW},
        quarantine=True,
        shield=True,
        description="threshold with dwell, half-open return and rate-limited re-admission",
    ),
    "burn-rate": Baseline(
        factory=_hysteresis,
        parameters={**_PACE, **_HEADROOM, "hour_s": 0.0, "least_units": 10.0},
        quarantine=True,
        shield=True,
        description="hysteresis, driven by multi-window burn-rate alerts on every clause",
        detector=_burn_rate,
    ),
    "sequential": Baseline(
        factory=_hysteresis,
        parameters={**_PACE, **_HEADROOM, **_SEQUENTIAL},
        quarantine=True,
        shield=True,
        description="hysteresis, driven by sequential detectors within a budget of false switches",
        detector=_sequential,
    ),
    "informed": Baseline(
        factory=_informed,
        parameters={"program": 1.0, "guard_share": 1.0, **_HEADROOM, **_COSTS, **_PROGRAM, **_SEQUENTIAL},
        quarantine=True,
        shield=True,
        description="reference: told of each fault after a known-law CUSUM's delay; plans by linear program",
        detector=_sequential,
    ),
    "linear-program": Baseline(
        factory=_linear_program,
        parameters={**_COSTS, **_PROGRAM, **_SEQUENTIAL},
        quarantine=True,
        shield=True,
        description="cheapest table by measured profiles and sequential evidence, taken as certain",
        detector=_sequential,
    ),
    "threshold": Baseline(
        factory=_threshold,
        parameters={"guard_share": 1.0, **_HEADROOM, **_WINDOW},
        quarantine=True,
        shield=True,
        description="two thresholds on health, acted on at once",
    ),
}


#: Every policy by name: the baselines, and ``learned``, which needs a file. artefact: URI of a certified
#: artefact ("": the shipped one); onnx: an ONNX file alone, for certification and choice only.
POLICIES: Mapping[str, Baseline] = {
    **BASELINES,
    "learned": Baseline(
        factory=_learned,
        parameters=_SEQUENTIAL,
        texts={"artefact": "", "onnx": ""},
        quarantine=True,
        shield=True,
        description="learned, on the evidence of the sequential detectors",
        detector=_sequential,
    ),
}


def make_policy(spec: str, fleet: FleetSetup, **parameters: Value) -> Policy:
    """Policy ``spec`` ("name" or "name:key=value,...") for ``fleet``; ``parameters`` override the text.

    Raises ValueError for an unknown name or parameter, naming the known ones.
    """
    name, chosen = _chosen(spec, parameters)
    baseline = _lookup(name)
    return baseline.factory(fleet, write_spec(name, chosen), _settings(baseline, chosen))


def make_arm(
    spec: str, fleet: FleetSetup, options: ControllerOptions | None = None,
    notices: Notices | None = None, **parameters: Value,
) -> ControllerSetup:  # fmt: skip
    """Controller set-up in which ``spec`` runs as an arm of E5; ``options`` replaces the arm's levers.

    notices: what ``informed`` is told; no other policy sees it.
    """
    name, chosen = _chosen(spec, parameters)
    baseline = _lookup(name)
    values = replace(_settings(baseline, chosen), notices=notices)
    fleet = _windowed(fleet, values)
    levers = options or _levers(baseline)
    watch = WindowDetector() if baseline.detector is None else baseline.detector(fleet, values)
    policy = baseline.factory(fleet, write_spec(name, chosen), values)
    return ControllerSetup(fleet=fleet, policy=policy, options=levers, detector=watch)


def arm_facts(spec: str) -> dict[str, object]:
    """What decides in the arm ``spec``: its policy, every setting, defaults too, the controller's own, and
    the hash of the calibrated thresholds where its detector reads them.

    Raises ValueError for an unknown name or parameter.
    """
    name, chosen = _chosen(spec, {})
    baseline = _lookup(name)
    values = _settings(baseline, chosen)
    facts: dict[str, object] = {"policy": name, "settings": {**values.numbers, **values.texts}}
    facts["options"] = asdict(_levers(baseline))
    if baseline.detector is _sequential and not values["traffic_factor"] > 0.0:
        facts["traffic_sha256"] = sha256_of(resolve_uri(SHIPPED_TRAFFIC, "selvage"))
    return facts


def _levers(baseline: Baseline) -> ControllerOptions:
    """The controller's own settings under ``baseline``."""
    return ControllerOptions(quarantine=baseline.quarantine, shield=baseline.shield)


def _settings(baseline: Baseline, chosen: Mapping[str, Value]) -> Settings:
    """Every parameter of ``baseline``: as chosen, else its default."""
    numbers = {name: float(chosen.get(name, default)) for name, default in baseline.parameters.items()}
    texts = {name: str(chosen.get(name, default)) for name, default in baseline.texts.items()}
    return Settings(numbers=numbers, texts=texts)


def _windowed(fleet: FleetSetup, values: Settings) -> FleetSetup:
    """``fleet`` judged by windows of the arm's own length and least number of units, where it sets them."""
    window_s, units = values.get("window_s", 0.0), int(values.get("min_samples", 0.0))
    contract = fleet.contract
    if window_s > 0.0:
        contract = replace(contract, window_s=window_s)
    if units > 0:
        contract = replace(contract, min_samples=units)
    return fleet if contract is fleet.contract else replace(fleet, contract=contract)


def _chosen(spec: str, parameters: Mapping[str, Value]) -> tuple[str, dict[str, Value]]:
    """Name and given parameters; ValueError for one that the policy does not take."""
    name, values = parse_spec(spec)
    baseline = _lookup(name)
    chosen = {**values, **parameters}
    known = {*baseline.parameters, *baseline.texts}
    unknown = sorted(set(chosen) - known)
    if unknown:
        names = ", ".join(sorted(known)) or "none"
        raise ValueError(f"policy {name!r}: unknown parameter {unknown[0]!r}; known: {names}")
    for parameter, value in chosen.items():
        if parameter in baseline.parameters:
            _check_range(name, parameter, value)
    return name, chosen


def _check_range(name: str, parameter: str, value: Value) -> None:
    """Times, counts, factors and budgets are finite and not negative; shares and confidences at most 1."""
    if isinstance(value, str):
        raise ValueError(
            f"policy {name!r}: expected key=number, got '{parameter}={value}'; write e.g. {EXAMPLE}"
        )
    share = parameter.endswith(("_share", "confidence", "_ratio"))
    if not isfinite(value) or value < 0.0 or (share and value > 1.0):
        expected = "a number between 0 and 1" if share else "a finite number >= 0"
        raise ValueError(f"policy {name!r}: {parameter}: expected {expected}, got {value:g}")


def _lookup(name: str) -> Baseline:
    if name not in POLICIES:
        raise ValueError(f"unknown policy {name!r}; known: {', '.join(sorted(POLICIES))}")
    return POLICIES[name]
