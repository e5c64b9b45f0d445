"""Rank form: guaranteed where units join the bank, conditional on the bank where they do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from contracts.detect.bank_arl import bank_arls
from contracts.detect.calibrate import guaranteed_threshold
from contracts.detect.compiled import rank
from contracts.detect.laws import Normal
from contracts.detect.ranks import Rank, rank_detector, rank_edges
from contracts.detect.simulate import false_alarms

RNG = np.random.default_rng(9)


def online(bank: int, streams: int) -> tuple[Rank, np.ndarray]:
    """A joining rank detector and one bank of normal units per stream."""
    edges = rank_edges(RNG.normal(size=100))
    return Rank(edges=tuple(edges.tolist()), counts=(0.0,) * (edges.size + 1)), RNG.normal(
        size=(streams, bank)
    )


def test_online_ranks_are_independent_and_uniform() -> None:
    """The shares of the bank above successive units are uniform, and uncorrelated from one to the next."""
    detector, banks = online(5, 4000)
    state, uppers = detector.with_banks(banks), []
    edges = np.array(detector.edges)
    for _ in range(6):
        upper, value = np.zeros(4000), RNG.normal(size=4000)
        bins = np.searchsorted(edges, value, side="right")
        rank(state.memory, upper, bins, np.ones(4000, dtype=np.bool_), 3, 0, True)
        uppers.append(upper)
    for upper in uppers:
        assert kstest(upper, "uniform").pvalue > 1e-4
    assert np.abs(np.corrcoef(uppers) - np.eye(6)).max() < 0.07


@given(values=st.lists(st.sampled_from([0.0, 0.5, 1.0, 7.0]), min_size=1, max_size=20))
def test_the_bank_holds_what_joined(values: list[float]) -> None:
    """After n units the bank holds n more, each in the bin of its value; a fixed bank stays as it was."""
    bank = np.random.default_rng(0).random(50)
    for joins in (True, False):
        detector = rank_detector(bank, joins=joins)
        state = detector.initial(1)
        for value in values:
            detector.advance(state, np.array([value]), np.ones(1, dtype=np.bool_))
        counts = state.memory[0, len(detector.shifts) + 3 :]
        bins = np.searchsorted(np.array(detector.edges), values, side="right")
        more = np.bincount(bins, minlength=counts.size) if joins else 0
        assert np.array_equal(counts, np.array(detector.counts) + more)


def test_online_ranks_keep_their_arl0() -> None:
    """Without a model, from small banks: the lower limit of the measured run length is not below ARL0."""
    detector, banks = online(40, 1500)
    found = false_alarms(
        detector, guaranteed_threshold(500.0), Normal(), streams=1500, samples=1500, seed=2,
        begin=detector.with_banks(banks),
    )  # fmt: skip
    assert found.arl_at_least(0.99) >= 500.0


def test_fixed_banks_differ_in_what_they_promise() -> None:
    """Conditional on a fixed bank ARL0 varies: the worst banks fall below what was declared."""
    banks = RNG.normal(size=(40, 200))
    edges = rank_edges(RNG.normal(size=100))
    found = bank_arls(edges, banks, Normal(), guaranteed_threshold(1000.0), streams=60, samples=2000, seed=3)
    assert found.low < 1000.0 < found.median
    assert found.low <= found.harmonic_mean


def test_small_banks_and_bad_edges_are_refused() -> None:
    """A bank below 20 units, and edges that do not ascend, are refused."""
    with pytest.raises(ValueError, match="at least 20"):
        rank_detector(np.zeros(5))
    with pytest.raises(ValueError, match="ascending"):
        Rank(edges=(1.0, 1.0), counts=(1.0, 1.0, 1.0))
    with pytest.raises(ValueError, match="counts"):
        Rank(edges=(1.0,), counts=(1.0,))
