"""Rules of documents about policies: a valid document, one change, and the message."""

from __future__ import annotations

import pytest

from tests.support.documents.policy_documents import ARTIFACT, DRILL, META, ROUTE, SUITE
from tests.support.documents.rule_cases import Change, Tree, problems

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
    "uri and a rate": (
        SUITE,
        lambda s: s["scenarios"][2].update(rate_rps=2.0),
        "spec.scenarios[2].uri",
        "overrides",
    ),
    "two rates": (
        SUITE,
        lambda s: s["scenarios"][0].update(rate_rps=2.0, rate_factor=2.0),
        "spec.scenarios[0].rate_rps",
        "both",
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
    "fewer seeds of nobody": (
        SUITE,
        lambda s: s.update(fewer_seeds={"policies": ["nobody"], "seeds": 1}),
        "spec.fewer_seeds.policies[0]",
        "one of policies",
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
        "'failures' again",
    ),
    "guard that nothing measures": (
        DRILL,
        lambda s: s["steady_state"][0].update(metric="kl_mean"),
        "spec.steady_state[0].metric",
        "failure_rate, late_ratio",
    ),
    "guard in per cent": (
        DRILL,
        lambda s: s["steady_state"][0].update(threshold=5.0),
        "spec.steady_state[0].threshold",
        "0.05 for 5 %",
    ),
    "mode": (ROUTE, lambda s: s.update(mode="force"), "spec.mode", "'observe' or 'enforce'"),
}


@pytest.mark.parametrize("rule", POLICY_RULES)
def test_policy_rules(rule: str) -> None:
    """Valid documents about policies with one rule broken are refused at that place for that reason."""
    valid, change, path, said = POLICY_RULES[rule]
    assert problems(valid) == []
    found = problems(valid, change)
    assert any(place == path and said in message for place, message in found), found
