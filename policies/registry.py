"""The policies of this project by name, and construction of any policy from its text form.

``make_policy("hysteresis:dwell_s=120,step_ratio=0.25", fleet)`` gives the policy alone;
``make_configuration`` adds the detector and the controller options under which E5 runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

from contracts.loading.files import canonical_sha256, sha256_of
from contracts.loading.shipped import SHIPPED_ARTEFACT
from contracts.loading.uris import resolve_uri
from contracts.regular_files import ONNX_BYTES, read_regular
from controller.detect.registry import DETECTORS
from controller.detect.traffic import SHIPPED as SHIPPED_TRAFFIC
from controller.detect.window import WindowDetector
from controller.fleet import FleetSetup
from controller.options import ControllerOptions, ControllerSetup, ShieldLimits
from controller.ports import Policy
from policies import factories
from policies.kinds import POLICIES, PolicyKind, chosen_settings, policy_kind, settings_of
from policies.parameters import (
    BREAKER,
    BURN_RATE,
    COSTS,
    GUARD,
    HEADROOM,
    INFORMED,
    PACE,
    PROGRAM,
    SEQUENTIAL,
    WINDOW,
)
from policies.rules.informed import Notices
from policies.spec import Settings, Value, write_spec

#: Limits for policies that know the true capacity, without a margin for estimation errors.
_KNOWN_CAPACITY = ShieldLimits(
    comfortable_load_ratio=ShieldLimits().max_load_ratio, kept_load_ratio=ShieldLimits().max_load_ratio
)
#: Every baseline by name.
BASELINES: Mapping[str, PolicyKind] = {
    "fixed-bare": PolicyKind(
        factory=factories.fixed,
        parameters={},
        quarantine=False,
        shield=False,
        description="home kernel, no lever at all",
    ),
    "fixed": PolicyKind(
        factory=factories.fixed,
        parameters={},
        quarantine=True,
        shield=False,
        description="home kernel, single replicas quarantined",
    ),
    "breaker": PolicyKind(
        factory=factories.breaker,
        parameters=BREAKER,
        quarantine=False,
        shield=False,
        description="home kernel, replicas ejected for HTTP failures as Envoy does by default",
    ),
    "shield-alone": PolicyKind(
        factory=factories.uniform,
        parameters={},
        quarantine=False,
        shield=True,
        description="uniform proposals, shielded",
    ),
    "hysteresis": PolicyKind(
        factory=factories.hysteresis,
        parameters={**PACE, **HEADROOM, **WINDOW},
        quarantine=True,
        shield=True,
        description="threshold with dwell, half-open return and rate-limited re-admission",
    ),
    "burn-rate": PolicyKind(
        factory=factories.hysteresis,
        parameters={**PACE, **HEADROOM, **BURN_RATE},
        quarantine=True,
        shield=True,
        description="hysteresis, driven by multi-window burn-rate alerts on every clause",
        detector=factories.burn_rate,
    ),
    "sequential": PolicyKind(
        factory=factories.hysteresis,
        parameters={**PACE, **HEADROOM, **SEQUENTIAL},
        quarantine=True,
        shield=True,
        description="hysteresis, driven by sequential detectors within a budget of false switches",
        detector=factories.sequential,
    ),
    "informed": PolicyKind(
        factory=factories.informed,
        parameters={**INFORMED, **GUARD, **HEADROOM, **COSTS, **PROGRAM, **SEQUENTIAL},
        quarantine=True,
        shield=True,
        description="reference: told of each fault after a known-law CUSUM's delay; plans by linear program",
        detector=factories.sequential,
        limits=_KNOWN_CAPACITY,
    ),
    "linear-program": PolicyKind(
        factory=factories.linear_program,
        parameters={**COSTS, **PROGRAM, **SEQUENTIAL},
        quarantine=True,
        shield=True,
        description="cheapest table by measured profiles and sequential evidence, taken as certain",
        detector=factories.sequential,
    ),
    "threshold": PolicyKind(
        factory=factories.threshold,
        parameters={**GUARD, **HEADROOM, **WINDOW},
        quarantine=True,
        shield=True,
        description="two thresholds on health, acted on at once",
    ),
}


def _learned(fleet: FleetSetup, policy_id: str, values: Settings) -> Policy:
    # Here, because only learned policies need onnxruntime.
    from policies.certify.artifact_files import load_learned
    from policies.learned.runner import learned_policy

    onnx = values.text("onnx")
    if onnx:
        return learned_policy(read_regular(onnx, ONNX_BYTES), fleet, policy_id, onnx)
    return load_learned(values.text("artefact"), fleet, configuration_facts, policy_id)


#: The learned policy, which needs a file. artefact: URI of a certified artefact ("": the shipped one);
#: onnx: an ONNX file alone, for certification and choice only.
LEARNED = PolicyKind(
    factory=_learned,
    parameters=SEQUENTIAL,
    texts={"artefact": "", "onnx": ""},
    quarantine=True,
    shield=True,
    description="learned, on the evidence of the sequential detectors",
    detector=factories.sequential,
)


def _plain(fleet: FleetSetup, policy_id: str, values: Settings) -> Policy:
    # Here, because only learned policies need onnxruntime.
    from policies.certify.artifact_files import load_plain
    from policies.learned.plain import plain_policy

    onnx, artefact = values.text("onnx"), values.text("artefact")
    if artefact:
        return load_plain(artefact, fleet, configuration_facts, policy_id)
    if not onnx:
        raise ValueError("policy 'gym': give its file, e.g. gym:onnx=mine.onnx")
    return plain_policy(read_regular(onnx, ONNX_BYTES), fleet, policy_id, onnx)


#: A policy that some library trained on the environment (``selvage policy export --sb3``). artefact: URI of a
#: certified artefact; onnx: an ONNX file alone, for certification and choice only.
PLAIN = PolicyKind(
    factory=_plain,
    parameters=WINDOW,
    texts={"artefact": "", "onnx": ""},
    quarantine=True,
    shield=True,
    description="trained on the environment by another library; on completed windows, as there",
)


def register_policy(name: str, policy: PolicyKind) -> None:
    """Register ``policy`` as ``name`` wherever policies are named; ValueError if the name is taken."""
    POLICIES.register(name, policy)


for _name, _policy in (*BASELINES.items(), ("learned", LEARNED), ("gym", PLAIN)):
    register_policy(_name, _policy)


def make_policy(spec: str, fleet: FleetSetup, **parameters: Value) -> Policy:
    """Policy ``spec`` ("name" or "name:key=value,...") for ``fleet``; ``parameters`` override the text.

    Raises ValueError for an unknown name or parameter, naming the known ones.
    """
    name, chosen = chosen_settings(spec, parameters)
    baseline = policy_kind(name, chosen)
    return baseline.factory(fleet, write_spec(name, chosen), settings_of(baseline, chosen))


def make_configuration(
    spec: str,
    fleet: FleetSetup,
    options: ControllerOptions | None = None,
    notices: Notices | None = None,
    **parameters: Value,
) -> ControllerSetup:
    """Controller set-up that runs ``spec`` as a configuration of E5; ``options`` replaces its levers.

    notices: faults given to ``informed``; no other policy sees them.
    """
    name, chosen = chosen_settings(spec, parameters)
    baseline = policy_kind(name, chosen)
    values = replace(settings_of(baseline, chosen), notices=notices)
    fleet = _windowed(fleet, values)
    levers = options or _levers(baseline)
    watch = WindowDetector() if baseline.detector is None else baseline.detector(fleet, values)
    policy = baseline.factory(fleet, write_spec(name, chosen), values)
    return ControllerSetup(fleet=fleet, policy=policy, options=levers, detector=watch)


def configuration_facts(spec: str) -> dict[str, object]:
    """All facts that decide in the configuration ``spec``: its policy, every setting including defaults, the
    controller's own, and the hash of the calibrated thresholds if its detector reads them.

    Raises ValueError for an unknown name or parameter.
    """
    name, chosen = chosen_settings(spec, {})
    baseline = policy_kind(name, chosen)
    values = settings_of(baseline, chosen)
    facts: dict[str, object] = {"policy": name, "settings": {**values.numbers, **values.texts}}
    facts["options"] = asdict(_levers(baseline))
    if baseline.detector is factories.sequential and not values["traffic_factor"] > 0.0:
        facts["traffic_sha256"] = sha256_of(resolve_uri(SHIPPED_TRAFFIC, "selvage"))
    brought = POLICIES.code_sha256(name), DETECTORS.code_sha256(str(chosen.get("detector", "")))
    return facts if brought == (None, None) else facts | {"plugins_sha256": list(brought)}


def files_of(spec: str) -> dict[str, str]:
    """sha256 of every file that the configuration ``spec`` names, by parameter. ValueError as above."""
    name, chosen = chosen_settings(spec, {})
    values = settings_of(policy_kind(name, chosen), chosen)
    files = {key: resolve_uri(uri, "") for key, uri in values.texts.items() if uri and key != "detector"}
    if name == "learned" and not files:
        files = {"artefact": resolve_uri(SHIPPED_ARTEFACT, "")}
    return {key: sha256_of(path) for key, path in files.items() if path.is_file()}


def configuration_sha256(spec: str) -> str:
    """Hash of ``configuration_facts``, with file contents in place of file names: another network in a file
    of the same name is another configuration.

    Raises ValueError for an unknown name or parameter.
    """
    facts = configuration_facts(spec)
    name, chosen = chosen_settings(spec, {})
    values = settings_of(policy_kind(name, chosen), chosen)
    return canonical_sha256({**facts, "settings": {**values.numbers, **values.texts, **files_of(spec)}})


def _levers(baseline: PolicyKind) -> ControllerOptions:
    """The controller's own settings under ``baseline``."""
    return ControllerOptions(quarantine=baseline.quarantine, shield=baseline.shield, limits=baseline.limits)


def _windowed(fleet: FleetSetup, values: Settings) -> FleetSetup:
    """``fleet`` judged by windows of the configuration's own length and least number of observations, if it
    sets them.
    """
    window_s, least = values.get("window_s", 0.0), int(values.get("min_samples", 0.0))
    contract = fleet.contract
    if window_s > 0.0:
        contract = replace(contract, window_s=window_s)
    if least > 0:
        contract = replace(contract, min_samples=least)
    return fleet if contract is fleet.contract else replace(fleet, contract=contract)
