"""Rows of failures tell of a replica only where the others would hardly have them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from controller.judge.replicas.failing_in_a_row import CHANCE, consecutive_failures, failing_between_answers

RATES = st.lists(st.floats(0.0, 50.0), min_size=4, max_size=4)


def told(
    rows: list[int], answered: list[float], failed: list[float], now: list[float] | None = None
) -> list[int]:
    """What is left of ``rows`` with such smoothed rates of each replica, and failures ``now``, in a tick."""
    return [int(row) for row in consecutive_failures(seen(rows, answered, failed, now))[0]]


def seen(rows: list[int], answered: list[float], failed: list[float], now: list[float] | None = None) -> Any:
    """A fleet of one kernel with such ``rows``; rates are of ten seconds."""
    rates = {"answered_rps": np.array([answered]), "failed_rps": np.array([failed])}
    state = SimpleNamespace(quarantined=np.zeros((1, len(rows)), dtype=np.bool_), **rates)
    case: Any = SimpleNamespace(
        estimate=SimpleNamespace(state=state, failing_now=np.array([rows]) > 0),
        telemetry=SimpleNamespace(
            consecutive_failed=np.array([rows]),
            failed=np.array([now or [0.0] * len(rows)]),
            answered=np.zeros((1, len(rows))),
        ),
        ready=np.ones((1, len(rows)), dtype=np.bool_),
        setup=SimpleNamespace(options=SimpleNamespace(failing_after=5, smoothing_s=10.0)),
    )
    return case


@given(answered=RATES, row=st.integers(0, 1000))
def test_where_nobody_else_fails_a_row_without_answers_tells(answered: list[float], row: int) -> None:
    """As the gateway counts it, whoever it is: all of its failures of late stand in the row."""
    assert told([row, 0, 0, 0], answered, [row / 10.0, 0.0, 0.0, 0.0]) == [row, 0, 0, 0]


@given(answered=RATES, row=st.integers(5, 1000), before=st.integers(0, 3000), now=st.booleans())
def test_who_answers_between_its_failures_is_not_down(
    answered: list[float], row: int, before: int, now: bool
) -> None:
    """As many failures before the row as in it, of late or in this tick: it fails, and is not down."""
    failed, none = [float(row + before), 0.0, 0.0, 0.0], [0.0] * 4
    assume(before != row)
    given_now = none if now else [each / 10.0 for each in failed], failed if now else none
    case = seen([row, 0, 0, 0], answered, *given_now)
    shares = before > row
    assert failing_between_answers(case)[0].tolist() == [shares, False, False, False]
    assert consecutive_failures(case)[0].tolist() == [0 if shares else row, 0, 0, 0]


@given(answered=RATES, failed=RATES, row=st.integers(5, 1000))
def test_a_row_tells_less_the_more_the_others_fail(
    answered: list[float], failed: list[float], row: int
) -> None:
    """Whoever is excused stays so where the others fail more; and a longer row never tells less."""
    rows, failed = [row, 0, 0, 0], [min(failed[0], row / 10.0), *failed[1:]]
    worse = [failed[0], *(rate + 1.0 for rate in failed[1:])]
    if told(rows, answered, failed)[0] == 0:
        assert told(rows, answered, worse)[0] == 0
    else:
        assert told([row + 7, 0, 0, 0], answered, failed)[0] == row + 7


def test_rows_of_a_fleet_that_fails_everywhere_are_chance() -> None:
    """Nine tenths fail on every replica: 20 in a row are no sign; beside healthy others five are."""
    busy, broken, idle = [5.0] * 4, [45.0] * 4, [0.0] * 4
    assert told([20, 8, 5, 30], busy, broken) == [0, 0, 0, 0]
    assert told([5, 0, 0, 0], [0.0, 50.0, 50.0, 50.0], [0.5, 0.0, 0.0, 0.0]) == [5, 0, 0, 0]
    assert told([5, 5, 5, 5], busy, idle) == [5, 5, 5, 5]
    assert told([20, 8, 5, 30], busy, idle, now=[20.0, 9.0, 9.0, 30.0]) == [0, 0, 0, 0]
    assert 0.2**8 >= CHANCE > 0.2**9
