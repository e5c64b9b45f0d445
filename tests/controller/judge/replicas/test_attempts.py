"""Evidence that one replica fails more than its peers accumulates until it is enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.rng import stream
from controller.judge.replicas.attempts_pass import COLUMNS, EVIDENCE, FAILS_MORE, add_tick

OWNER = np.array([0, 0, 0, 0, 1, 1], dtype=np.int64)


def evidence(rates: Any, attempts_per_tick: float, ticks: int, seed: int) -> Any:
    """float64 [T, R] after each tick, with Poisson attempts; rates: a function of the tick, [R]."""
    rng, kept = stream(seed, "failing more"), np.zeros((1, OWNER.size, COLUMNS))
    told = np.zeros((ticks, OWNER.size))
    for tick in range(ticks):
        ended = rng.poisson(attempts_per_tick, OWNER.size)
        failed = rng.binomial(ended, rates(tick))
        add_tick(kept, ended[None].astype(np.float64), failed[None].astype(np.float64), OWNER, 2)
        told[tick] = kept[0, :, EVIDENCE]
    return told


@pytest.mark.parametrize("attempts", [0.3, 5.0])
def test_failures_common_to_all_replicas_blame_none(attempts: float) -> None:
    """A third of all fails, every second minute: by chance at most once in ``FAILS_MORE`` ticks a replica."""
    ticks, draws = 600, 40
    reached = sum(
        (evidence(lambda tick: np.full(6, 0.33 * (tick // 60 % 2)), attempts, ticks, seed) >= FAILS_MORE)
        .any(axis=0)
        .sum()
        for seed in range(draws)
    )
    expected = draws * OWNER.size * ticks / 2 / FAILS_MORE
    assert reached <= expected + 4.0 * np.sqrt(expected)


def test_a_replica_that_fails_a_third_of_few_requests_is_found() -> None:
    """At a request in three seconds, within three minutes in 19 of 20 draws, and no other replica in any."""
    rates, found = np.array([0.0, 0.33, 0.0, 0.0, 0.0, 0.0]), 0
    for seed in range(40):
        told = evidence(lambda _tick: rates, 0.33, 180, seed)
        found += bool((told[:, 1] >= FAILS_MORE).any())
        assert not (np.delete(told, 1, axis=1) >= FAILS_MORE).any()
    assert found >= 38


@given(st.integers(1, 500), st.integers(21, 500))
def test_two_bursts_of_one_replica_prove_nothing(size: int, attempts: int) -> None:
    """Two bursts of any size are no evidence; a third counts if there was something to compare."""
    kept, rest = np.zeros((1, OWNER.size, COLUMNS)), np.full((1, OWNER.size), float(attempts))
    burst = np.where(np.arange(OWNER.size) == 2, float(size), 0.0)[None]
    for _ in range(2):
        add_tick(kept, rest + burst, burst, OWNER, 2)
    assert (kept[..., EVIDENCE] < FAILS_MORE).all()


def test_a_lone_replica_and_ticks_without_failures_give_no_evidence() -> None:
    """Without peers, or without failures, there is nothing to compare."""
    alone = np.zeros((1, 1, COLUMNS))
    add_tick(alone, np.array([[50.0]]), np.array([[50.0]]), np.array([0]), 1)
    quiet = np.zeros((1, OWNER.size, COLUMNS))
    quiet[..., EVIDENCE] = 7.0
    add_tick(quiet, np.full((1, OWNER.size), 50.0), np.zeros((1, OWNER.size)), OWNER, 2)
    assert not alone.any()
    assert (quiet[..., EVIDENCE] == 7.0).all()
    assert not quiet[..., 1:].any()
