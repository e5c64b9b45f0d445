"""Rules of scenarios and of documents about policies: a sound document, one place changed, the message."""

from __future__ import annotations

import pytest

from tests.rule_cases import Change, Tree, fault, problems
from tests.synthetic import envelope, scenario_document

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
    """A sound scenario with one rule broken is refused at that place for that reason."""
    sound = scenario_document(faults=[], changes=[])
    assert problems(sound, lambda s: s["faults"].append(fault())) == []
    change, path, said = SCENARIO_RULES[rule]
    found = problems(sound, change)
    assert any(place == path and said in message for place, message in found), found


SHA = "0" * 64
META = envelope(
    "MetaContract",
    "meta",
    {
        "description": "d",
        "baseline": "threshold",
        "clauses": [
            {
                "id": "a",
                "metric": "dwell_s",
                "sense": "at_least",
                "threshold": 30.0,
                "checked": "online",
                "on_violation": "hold",
                "reason": "r",
            },
            {
                "id": "b",
                "metric": "shed_ratio",
                "threshold": 0.02,
                "checked": "both",
                "judged_on": "incidents",
                "on_violation": "demote",
                "reason": "r",
            },
        ],
    },
)
ARTIFACT = envelope(
    "PolicyArtifact",
    "art",
    {
        "description": "d",
        "onnx": {"uri": "p.onnx", "sha256": SHA},
        "encoding_version": 1,
        "training": {"command": "train", "seeds": [1]},
        "certificate": {
            "subject": "art",
            "subject_sha256": SHA,
            "suite_sha256": SHA,
            "meta_contract_sha256": SHA,
            "command": "selvage policy certify",
            "code_version": "0",
            "seeds": 20,
            "episodes": 40,
            "passed": True,
            "clauses": [
                {
                    "id": "a",
                    "metric": "mttr_s",
                    "judged_on": "incidents",
                    "method": "clustered_bootstrap",
                    "threshold": 3.0,
                    "value": 1.0,
                    "ci_high": 2.0,
                    "n": 40,
                    "passed": True,
                }
            ],
        },
    },
)
SUITE = envelope(
    "Suite",
    "suite",
    {
        "description": "d",
        "base": "base.yaml",
        "scenarios": [
            {"name": "w4", "faults": [fault()]},
            {"name": "calm", "control": True},
            {"name": "own", "uri": "own.yaml"},
        ],
    },
)
DRILL = envelope(
    "FaultDrill",
    "drill",
    {
        "description": "d",
        "pool": "pool",
        "faults": [fault()],
        "time_to_live_s": 60.0,
        "steady_state": [{"name": "kl", "metric": "kl_mean", "estimator": "full_vocab", "threshold": 1e-3}],
    },
)
ROUTE = envelope(
    "RoutePolicy",
    "route",
    {
        "description": "d",
        "policy": "threshold",
        "pool": "pool",
        "contract": "contract",
        "meta_contract": "package:contracts/library/meta-contract.yaml",
        "route": {"name": "chat"},
    },
)

POLICY_RULES: dict[str, tuple[Tree, Change, str, str]] = {
    "clause twice": (META, lambda s: s["clauses"][1].update(id="a"), "spec.clauses[1].id", "'a' again"),
    "share above one": (
        META,
        lambda s: s["clauses"][1].update(threshold=2.0),
        "spec.clauses[1].threshold",
        "5 %",
    ),
    "wrong side": (
        META,
        lambda s: s["clauses"][0].update(sense="at_most"),
        "spec.clauses[0].sense",
        "other side",
    ),
    "refused online": (
        META,
        lambda s: s["clauses"][0].update(on_violation="refuse_artifact"),
        "spec.clauses[0].on_violation",
        "refused offline",
    ),
    "clause without a suite": (
        META,
        lambda s: s["clauses"][1].pop("judged_on"),
        "spec.clauses[1].judged_on",
        "incidents or quiet",
    ),
    "metric twice": (
        META,
        lambda s: s["clauses"][1].update(s["clauses"][0], id="b"),
        "spec.clauses[1].metric",
        "again",
    ),
    "nothing to be done": (
        META,
        lambda s: s["clauses"][1].update(on_violation="hold"),
        "spec.clauses[1].on_violation",
        "demote",
    ),
    "online without a remedy": (
        META,
        lambda s: s["clauses"][1].update(metric="mttr_s"),
        "spec.clauses[1].on_violation",
        "checked: offline",
    ),
    "limit beyond the threshold": (
        ARTIFACT,
        lambda s: s["certificate"]["clauses"][0].update(ci_high=3.5),
        "spec.certificate.clauses[0].passed",
        "not within 3",
    ),
    "passed without a value": (
        ARTIFACT,
        lambda s: s["certificate"]["clauses"][0].pop("ci_high"),
        "spec.certificate.clauses[0].passed",
        "None",
    ),
    "failed clause": (
        ARTIFACT,
        lambda s: s["certificate"]["clauses"][0].update(passed=False),
        "spec.certificate.passed",
        "failed: a",
    ),
    "failed suite": (
        ARTIFACT,
        lambda s: s["certificate"].update(passed=False),
        "spec.certificate.passed",
        "whole",
    ),
    "no base": (SUITE, lambda s: s.pop("base"), "spec.scenarios[0].uri", "a uri or a base, got neither"),
    "uri and overrides": (
        SUITE,
        lambda s: s["scenarios"][2].update(rate_factor=2.0),
        "spec.scenarios[2].uri",
        "overrides",
    ),
    "fault in a control": (
        SUITE,
        lambda s: s["scenarios"][0].update(control=True),
        "spec.scenarios[0].faults",
        "ordinary change",
    ),
    "scenario twice": (
        SUITE,
        lambda s: s["scenarios"][1].update(name="w4"),
        "spec.scenarios[1].name",
        "again",
    ),
    "drill after its life": (
        DRILL,
        lambda s: s["faults"][0].update(onset_s=61.0),
        "spec.faults[0].onset_s",
        "60",
    ),
    "guard twice": (
        DRILL,
        lambda s: s["steady_state"].append(s["steady_state"][0]),
        "spec.steady_state[1].name",
        "'kl' again",
    ),
    "mode": (ROUTE, lambda s: s.update(mode="force"), "spec.mode", "'observe' or 'enforce'"),
}


@pytest.mark.parametrize("rule", POLICY_RULES)
def test_policy_rules(rule: str) -> None:
    """Sound documents about policies with one rule broken are refused at that place for that reason."""
    sound, change, path, said = POLICY_RULES[rule]
    assert problems(sound) == []
    found = problems(sound, change)
    assert any(place == path and said in message for place, message in found), found
