"""A row of failures is evidence against a replica only where it would be unlikely for its peers."""

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
    """What is left of ``rows``, given smoothed rates of each replica and failures ``now`` in the tick."""
    return [int(row) for row in consecutive_failures(seen(rows, answered, failed, now))[0]]


def seen(rows: list[int], answered: list[float], failed: list[float], now: list[float] | None = None) -> Any:
    """A fleet of one kernel with such ``rows``; rates are smoothed over ten seconds."""
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
def test_where_no_peer_fails_a_row_without_answers_counts(answered: list[float], row: int) -> None:
    """It counts as the gateway reports it: all of the replica's recent failures are in the row."""
    assert told([row, 0, 0, 0], answered, [row / 10.0, 0.0, 0.0, 0.0]) == [row, 0, 0, 0]


@given(answered=RATES, row=st.integers(5, 1000), before=st.integers(0, 3000), now=st.booleans())
def test_a_replica_that_answers_between_failures_is_not_down(
    answered: list[float], row: int, before: int, now: bool
) -> None:
    """With other failures before the row, recent or in this tick, it fails but is not down."""
    failed, none = [float(row + before), 0.0, 0.0, 0.0], [0.0] * 4
    assume(before != row)
    given_now = none if now else [each / 10.0 for each in failed], failed if now else none
    case = seen([row, 0, 0, 0], answered, *given_now)
    shares = before > row
    assert failing_between_answers(case)[0].tolist() == [shares, False, False, False]
    assert consecutive_failures(case)[0].tolist() == [0 if shares else row, 0, 0, 0]


@given(answered=RATES, failed=RATES, row=st.integers(5, 1000))
def test_a_row_counts_less_the_more_the_peers_fail(
    answered: list[float], failed: list[float], row: int
) -> None:
    """An excused row stays excused when peers fail more, and a longer row never counts less."""
    rows, failed = [row, 0, 0, 0], [min(failed[0], row / 10.0), *failed[1:]]
    worse = [failed[0], *(rate + 1.0 for rate in failed[1:])]
    if told(rows, answered, failed)[0] == 0:
        assert told(rows, answered, worse)[0] == 0
    else:
        assert told([row + 7, 0, 0, 0], answered, failed)[0] == row + 7


def test_rows_in_a_fleet_that_fails_everywhere_are_chance() -> None:
    """With nine tenths failing on every replica 20 in a row mean nothing; beside healthy peers five do."""
    busy, broken, idle = [5.0] * 4, [45.0] * 4, [0.0] * 4
    assert told([20, 8, 5, 30], busy, broken) == [0, 0, 0, 0]
    assert told([5, 0, 0, 0], [0.0, 50.0, 50.0, 50.0], [0.5, 0.0, 0.0, 0.0]) == [5, 0, 0, 0]
    assert told([5, 5, 5, 5], busy, idle) == [5, 5, 5, 5]
    assert told([20, 8, 5, 30], busy, idle, now=[20.0, 9.0, 9.0, 30.0]) == [0, 0, 0, 0]
    assert 0.2**8 >= CHANCE > 0.2**9
