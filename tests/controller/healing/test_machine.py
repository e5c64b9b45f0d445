"""Laws of a replica's return to service, for any sequence of observations."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.healing.machine import begin, held_back, line, order, share, step
from controller.healing.records import (
    Flush,
    HealingOrder,
    HealingPhase,
    HealingSight,
    HealingState,
    HealingTerms,
)

TERMS = HealingTerms(verify_probes=8, readmit_over_s=20.0, steps=4, wait_s=5.0, most_wait_s=15.0)
terms_drawn = st.builds(
    HealingTerms,
    verify_probes=st.integers(1, 6),
    readmit_over_s=st.sampled_from([0.0, 2.0, 8.0]),
    reset_caches=st.booleans(),
    restart=st.booleans(),
    steps=st.integers(1, 4),
    wait_s=st.sampled_from([1.0, 3.0]),
    most_wait_s=st.sampled_from([3.0, 9.0]),
    attempts=st.integers(0, 3),
)
sights_drawn = st.lists(
    st.builds(
        HealingSight,
        now_s=st.just(0.0),
        restarted=st.sampled_from([None, True, True, False]),
        flush=st.sampled_from([None, *Flush]),
        agreed=st.integers(0, 3),
        failed=st.sampled_from([0, 0, 0, 0, 1]),
    ),
    max_size=60,
)


def walked(terms: HealingTerms, sights: list[HealingSight]) -> list[tuple[HealingState, HealingSight]]:
    """Every state with the observation that led to it, one second apart."""
    state = begin(0.0, terms)
    found = [(state, HealingSight(now_s=0.0))]
    for number, one in enumerate(sights, 1):
        sight = replace(one, now_s=float(number))
        state = step(state, sight, terms)
        found.append((state, sight))
    return found


def obeyed(terms: HealingTerms, seconds: int) -> list[HealingState]:
    """States of a healthy server that follows every order and answers one probe a second."""
    state, found = begin(0.0, terms), []
    for now in range(1, seconds):
        asked = order(state, terms)
        sight = HealingSight(
            now_s=float(now),
            restarted=True if asked is HealingOrder.RESTART else None,
            flush=Flush.FLUSHED if asked is HealingOrder.FLUSH else None,
            agreed=int(asked is HealingOrder.PROBE),
        )
        state = step(state, sight, terms)
        found.append(state)
    return found


@given(terms=terms_drawn, sights=sights_drawn)
def test_no_traffic_before_every_verification_probe_agreed(
    terms: HealingTerms, sights: list[HealingSight]
) -> None:
    """A replica with a share has passed ``verify_probes`` in this attempt, and each step's own as well."""
    for state, _ in walked(terms, sights):
        if share(state, terms) > 0.0:
            assert state.verified >= terms.verify_probes + (state.step - 1) * terms.step_probes


@given(terms=terms_drawn, sights=sights_drawn)
def test_a_share_falls_only_to_nothing_and_only_by_a_failure(
    terms: HealingTerms, sights: list[HealingSight]
) -> None:
    """Between two ticks a share rises, stays, or is taken back wholly after a failed probe."""
    path = walked(terms, sights)
    for (before, _), (after, sight) in pairwise(path):
        if share(after, terms) < share(before, terms):
            assert sight.failed > 0
            assert share(after, terms) == 0.0


@given(terms=terms_drawn, sights=sights_drawn)
def test_waits_double_to_their_limit(terms: HealingTerms, sights: list[HealingSight]) -> None:
    """The wait after attempt n is ``wait_s`` times 2 to the n - 1, at most ``most_wait_s``."""
    for state, _ in walked(terms, sights):
        if state.phase is HealingPhase.WAITING:
            assert state.wait_s == min(terms.wait_s * 2 ** (state.attempt - 1), terms.most_wait_s)


@given(terms=terms_drawn, sights=sights_drawn)
def test_an_end_is_final(terms: HealingTerms, sights: list[HealingSight]) -> None:
    """Healed stays healed, failed stays failed, and without a limit on attempts none fails."""
    path = [state for state, _ in walked(terms, sights)]
    ends = [state for state in path if state.ended]
    assert all(one == ends[0] for one in ends)
    assert terms.attempts > 0 or all(one.phase is not HealingPhase.FAILED for one in path)


@pytest.mark.parametrize("restart", [False, True])
def test_a_healthy_server_is_whole_after_the_time_of_its_steps(restart: bool) -> None:
    """Flush or restart, eight probes, four steps of five seconds: shares rise by fifths and end whole."""
    terms = replace(TERMS, restart=restart)
    path = obeyed(terms, 60)
    shares = [share(one, terms) for one in path]
    assert sorted(set(shares)) == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert shares.index(1.0) - shares.index(0.2) == 20
    assert path[-1].flush is (Flush.RESTARTED if restart else Flush.FLUSHED)


def test_a_probe_that_disagrees_late_restarts_the_return() -> None:
    """A failure in the last step takes the whole share back, and the cache is flushed once more."""
    state = next(one for one in obeyed(TERMS, 60) if one.step == 4)
    after = step(state, HealingSight(now_s=100.0, failed=1, told="gap 3 nats"), TERMS)
    assert (after.phase, after.wait_s, share(after, TERMS)) == (HealingPhase.WAITING, 5.0, 0.0)
    assert "gap 3 nats" in line(after, TERMS)
    again = step(after, HealingSight(now_s=105.0), TERMS)
    assert (again.phase, again.attempt, again.verified) == (HealingPhase.FLUSHING, 2, 0)


def test_a_server_without_flush_stays_out_and_the_record_says_so() -> None:
    """A cache that may be poisoned is not probed, and its replica stays out until the cache is emptied."""
    refused = HealingSight(now_s=1.0, flush=Flush.FAILED, told="it offers no flush")
    after = step(begin(0.0, TERMS), refused, TERMS)
    assert (after.phase, share(after, TERMS)) == (HealingPhase.WAITING, 0.0)
    assert "offers no flush" in line(after, TERMS)
    again = step(after, HealingSight(now_s=1.0 + after.wait_s), TERMS)
    assert again.phase is HealingPhase.FLUSHING
    emptied = step(again, HealingSight(now_s=9.0, flush=Flush.RESTARTED), TERMS)
    assert emptied.phase is HealingPhase.PROBING


def test_terms_that_verify_nothing_are_refused() -> None:
    """No probes, no steps or no wait raise an error that names the value given."""
    for changes in ({"verify_probes": 0}, {"steps": 0}, {"wait_s": 0.0}, {"readmit_over_s": float("inf")}):
        with pytest.raises(ValueError, match="verify_probes"):
            replace(TERMS, **changes)


OWNER = np.array([0, 0, 1])


def table_of(*rows: tuple[float, float, float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Rows of two kernels and the shed share."""
    return np.array(rows)


@pytest.mark.parametrize(
    ("row", "shares", "expected"),
    [
        ((1.0, 0.0, 0.0), (1.0, 0.2, 1.0), (1.0, 0.0, 0.0)),
        ((0.5, 0.5, 0.0), (1.0, 0.0, 0.2), (0.5 / 0.6, 0.1 / 0.6, 0.0)),
        ((0.5, 0.3, 0.2), (1.0, 1.0, 0.0), (0.8, 0.0, 0.2)),
        ((0.0, 1.0, 0.0), (1.0, 1.0, 0.0), (0.0, 1.0, 0.0)),
        ((0.4, 0.6, 0.0), (1.0, 1.0, 1.0), (0.4, 0.6, 0.0)),
    ],
)
def test_a_returning_replica_carries_its_share_and_every_kernel_keeps_a_server(
    row: tuple[float, float, float], shares: tuple[float, ...], expected: tuple[float, ...]
) -> None:
    """Whole peers keep a kernel's row, a lone replica passes on its rest, the last server is kept."""
    found = held_back(table_of(row), np.ones(3, dtype=np.bool_), np.array(shares), OWNER)
    assert found[0] == pytest.approx(expected)


@given(
    parts=st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3).filter(lambda row: sum(row) > 0.1),
    shares=st.lists(st.sampled_from([0.0, 0.2, 0.6, 1.0]), min_size=3, max_size=3),
    serving=st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_rows_stay_whole(parts: list[float], shares: list[float], serving: list[bool]) -> None:
    """The shed share of a row does not change, and the row still sums to one."""
    row = np.array([parts]) / sum(parts)
    found = held_back(row, np.array(serving), np.array(shares), OWNER)
    assert found.sum() == pytest.approx(1.0)
    assert found[0, -1] == row[0, -1]
