"""A document and a pool become strikes and times; too large a blast radius is refused."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.errors import DocumentError
from tests.support.fleets.drill_runs import drill_plan


def fault(**changes: Any) -> dict[str, Any]:
    """A fault on one replica."""
    return {"name": "one", "kind": "hang", "onset_s": 10.0, "target": {"kernel": "fast"}} | changes


def test_phases_follow_from_the_faults() -> None:
    """The undo comes with the last fault's end, the end of all ``after_s`` later."""
    plan = drill_plan(faults=[fault(duration_s=20.5, target={"kernel": "good"})], after_s=5.0)
    assert (plan.onset_s, plan.undo_at_s, plan.total_s) == (10.0, 31.0, 36.0)
    assert plan.strikes[0].replicas == ("good-0",)


def test_a_fault_without_an_end_lasts_as_long_as_it_may() -> None:
    """The document's time to live bounds every fault."""
    plan = drill_plan(faults=[fault(target={"kernel": "fast", "replica": 1})])
    assert plan.undo_at_s == 60.0
    assert plan.strikes[0].replicas == ("fast-1",)


def test_slices_share_the_load_alike_unless_said() -> None:
    """Without a mix every slice of the pool gets the same load."""
    assert [part.share for part in drill_plan().slices] == [0.5, 0.5]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"faults": [fault()]}, "at most 1 of 3 replicas"),
        (
            {"faults": [fault()], "blast_radius": {"replicas_at_most": 1, "replica_ratio_at_most": 1.0}},
            "at most 1",
        ),
        ({"faults": [fault(target={"kernel": "none"})]}, "spec.faults.0..target"),
        ({"faults": [fault(target={"kernel": "fast", "replica": 7})]}, "fast x 2"),
        ({"load": {"rate_rps": 1.0, "arrivals": "trace"}}, "trace_uri"),
        ({"load": {"rate_rps": 1.0, "slice_mix": [{"slice": "code", "share": 0.5}]}}, "sum to 1"),
    ],
)
def test_what_cannot_be_or_strikes_too_much_is_refused(changes: dict[str, Any], said: str) -> None:
    """The error names the place, the expectation and the found value."""
    with pytest.raises(DocumentError, match=said):
        drill_plan(**changes)


def test_a_wider_radius_is_the_documents_to_allow() -> None:
    """Both replicas of a kernel may be struck if the drill allows it."""
    plan = drill_plan(faults=[fault()], blast_radius={"replica_ratio_at_most": 0.7})
    assert plan.strikes[0].replicas == ("fast-0", "fast-1")


def test_a_share_of_the_replicas_is_struck() -> None:
    """Half of a kernel of two is one; without a share all selected replicas are struck."""
    plan = drill_plan(faults=[fault(target={"kernel": "fast", "replica_ratio": 0.5})])
    assert plan.strikes[0].replicas == ("fast-0",)
