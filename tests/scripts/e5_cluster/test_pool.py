"""When a policy is in force and a pool is at rest, by the operator's status."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.e5_cluster.pool import in_alarm, not_at_home, not_in_force
from scripts.e5_cluster.ports import ExperimentError

HOMES = {"prose": "fp8", "numbers": "bf16"}


def policy(**changes: str) -> dict[str, Any]:
    """In force and at home, with ``changes`` of conditions."""
    states = dict.fromkeys(("Accepted", "ResolvedRefs", "Ready", "Programmed"), "True") | changes
    conditions = [
        {"type": kind, "status": status, "message": f"why {kind}"} for kind, status in states.items()
    ]
    rows = [
        {
            "name": name,
            "weights": [{"name": kernel, "weight": float(kernel == home)} for kernel in ("fp8", "bf16")],
        }
        for name, home in HOMES.items()
    ]
    status = {"observedGeneration": 3, "conditions": conditions, "slices": rows}
    return {"metadata": {"generation": 3}, "status": status}


def test_a_policy_is_in_force_once_the_operator_says_so_of_this_very_spec() -> None:
    """A status of an older spec does not count."""
    assert not_in_force(policy()) == ""
    older = policy()
    older["metadata"]["generation"] = 4
    assert "has not looked" in not_in_force(older)
    assert "has not looked" in not_in_force({"metadata": {"generation": 1}})


@pytest.mark.parametrize("kind", ["Ready", "Programmed"])
@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_what_may_come_is_waited_for(kind: str, status: str) -> None:
    """The reason is given in the operator's own words."""
    assert not_in_force(policy(**{kind: status})) == f"{kind}: why {kind}"


@pytest.mark.parametrize("kind", ["Accepted", "ResolvedRefs"])
def test_what_never_comes_ends_the_run(kind: str) -> None:
    """A policy that the operator refuses is not waited for."""
    with pytest.raises(ExperimentError, match=f"why {kind}"):
        not_in_force(policy(**{kind: "False"}))


def test_a_clause_in_alarm_differs_from_other_degradations() -> None:
    """Only a clause counts, and only in a status of the present spec."""
    found = policy()
    for reason, expected in (("ClauseInAlarm", "why"), ("HardClauseBroken", "why"), ("KernelGone", "")):
        found["status"]["conditions"] = [{"type": "Degraded", "reason": reason, "message": "why"}]
        assert in_alarm(found) == expected
    found["status"]["conditions"][0]["reason"] = "ClauseInAlarm"
    found["status"]["observedGeneration"] = 2
    assert in_alarm(found) == ""
    assert in_alarm({"metadata": {"generation": 1}}) == ""


@pytest.mark.parametrize("weight", [0.0, 0.5, 0.99])
def test_a_slice_that_another_kernel_serves_is_away(weight: float) -> None:
    """Even in part; a slice missing from the status is away as well."""
    found = policy()
    found["status"]["slices"][0]["weights"][0]["weight"] = weight
    assert not_at_home(found, HOMES) == "slices away from home: prose"
    assert not_at_home(policy(), HOMES) == ""
    assert not_at_home({"metadata": {}}, HOMES) == "slices away from home: prose, numbers"
