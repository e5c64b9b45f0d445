"""Rules of scenarios: a valid document, one change, and the message."""

from __future__ import annotations

import pytest

from tests.support.documents.rule_cases import Change, fault, problems
from tests.support.fleets.synthetic import scenario_document

SCENARIO_RULES: dict[str, tuple[Change, str, str]] = {
    "no pool": (lambda s: s.pop("pool"), "spec.pool", "expected pool or pool_uri, got neither"),
    "two pools": (lambda s: s.update(pool_uri="p.yaml"), "spec.pool_uri", "got both"),
    "pool inside": (lambda s: s["pool"]["home"][0].update(kernel="x"), "spec.pool.home[0].kernel", "got 'x'"),
    "shares": (
        lambda s: s["workload"]["slice_mix"][0].update(share=0.9),
        "spec.workload.slice_mix",
        "sum to 1",
    ),
    "slice without a home": (
        lambda s: s["workload"]["slice_mix"][0].update(slice="cod"),
        "spec.workload.slice_mix[0].slice",
        "'cod'",
    ),
    "block missing": (lambda s: s["workload"].update(arrivals="gamma"), "spec.workload.gamma", "add gamma:"),
    "block too many": (
        lambda s: s["workload"].update(gamma={"gap_cv": 2.0}),
        "spec.workload.gamma",
        "no gamma with arrivals",
    ),
    "trace missing": (
        lambda s: s["workload"].update(arrivals="trace"),
        "spec.workload.trace_uri",
        "trace_uri",
    ),
    "tick": (lambda s: s.update(tick_s=100.0), "spec.tick_s", "at most horizon_s 60"),
    "late fault": (
        lambda s: s["faults"].append(fault(onset_s=60.0)),
        "spec.faults[0].onset_s",
        "never happen",
    ),
    "unmeasured fault": (
        lambda s: s["faults"].append(fault(condition=None)),
        "spec.faults[0].condition",
        "name the",
    ),
    "a replica and a share": (
        lambda s: s["faults"].append(fault(target={"kernel": "bf16", "replica": 0, "replica_ratio": 0.5})),
        "spec.faults[0].target.replica_ratio",
        "0.5",
    ),
    "unknown target": (
        lambda s: s["faults"].append(fault(target={"kernel": "fp8"})),
        "spec.faults[0].target.kernel",
        "'fp8'",
    ),
    "replica beyond": (
        lambda s: s["faults"].append(fault(target={"kernel": "bf16", "replica": 3})),
        "spec.faults[0].target.replica",
        "below the 3 replicas of bf16, got 3",
    ),
    "replica of whom": (
        lambda s: s["faults"].append(fault(target={"replica": 0})),
        "spec.faults[0].target.kernel",
        "within a kernel",
    ),
    "unknown zone": (
        lambda s: s["faults"].append(fault(target={"zone": "z9"})),
        "spec.faults[0].target.zone",
        "z0",
    ),
    "several kernels": (
        lambda s: s["faults"].append(fault(kind="correlated", target={"kernels": ["bf16", "x"]})),
        "spec.faults[0].target.kernels[1]",
        "'x'",
    ),
    "shape's block": (
        lambda s: s["faults"].append(fault(shape="ramp")),
        "spec.faults[0].ramp",
        "shape: ramp",
    ),
    "endless": (lambda s: s.update(horizon_s=1e12), "spec.horizon_s", "at most 1,000,000 ticks"),
    "fine ticks": (lambda s: s.update(tick_s=1e-9), "spec.horizon_s", "at most 1,000,000 ticks"),
    "flood": (lambda s: s["workload"].update(rate_rps=1e9), "spec.workload.rate_rps", "requests"),
    "probe flood": (
        lambda s: s["telemetry"].update(probes_per_s=1e9),
        "spec.telemetry.probes_per_s",
        "at most 1,000",
    ),
    "fault twice": (lambda s: s["faults"].extend([fault(), fault()]), "spec.faults[1].name", "'w4' again"),
    "late change": (
        lambda s: s["changes"].append({"kind": "cache_flush", "at_s": 99.0}),
        "spec.changes[0].at_s",
        "never happen",
    ),
    "change of whom": (
        lambda s: s["changes"].append({"kind": "scale_up", "at_s": 9.0, "kernel": "x"}),
        "spec.changes[0].kernel",
        "'x'",
    ),
}


@pytest.mark.parametrize("rule", SCENARIO_RULES)
def test_scenario_rules(rule: str) -> None:
    """A valid scenario with one rule broken is refused at that place for that reason."""
    valid = scenario_document(faults=[], changes=[])
    assert problems(valid, lambda s: s["faults"].append(fault())) == []
    change, path, said = SCENARIO_RULES[rule]
    found = problems(valid, change)
    assert any(place == path and said in message for place, message in found), found
