"""IncidentTimes in random worlds beside the informed reference's."""

from __future__ import annotations

import pytest

from scripts.studies.worlds.recovery import IncidentTimes, choose, mark, recoveries, summary, told


@pytest.mark.parametrize("number", [3, 20])
def test_what_was_never_left_is(number: int) -> None:
    """Ten of sixteen replicas hang in one zone, more than the ejection cap lets go (3); one of four fails a
    third of half a request per second, in no window enough to tell it from chance (20).
    """
    chosen = choose(number)
    assert chosen is not None
    found = dict(recoveries(chosen[0], ("sequential",), (1,)))
    assert found["sequential"]
    assert all(one.recovered for one in found["sequential"])
    assert told(number, chosen[1], found).startswith(f"{number}: ")


def test_marks_and_means() -> None:
    """LEFT precedes SLOW, and COST is added to both."""
    left, slow = IncidentTimes(300.0, False, 20.0, 0.1), IncidentTimes(60.0, True, 20.0, 0.7)
    assert mark({"sequential": [left]}) == "LEFT "
    assert mark({"sequential": [slow]}) == "SLOW COST "
    assert mark({"sequential": [IncidentTimes(34.0, True, 20.0, 0.0)]}) == ""
    lines = list(summary({"sequential": [left, slow], "learned": []}))
    assert lines == ["sequential: MTTR 180.0 s, informed 20.0 s, short by 0.40 points, 1 of 2 incidents left"]


def test_no_world_without_a_fault_or_a_choice() -> None:
    """World 0 has no fault or one kernel."""
    assert choose(0) is None
