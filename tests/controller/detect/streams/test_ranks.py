"""Rank form: guaranteed where units join the reference; where they do not, conditional on the reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from controller.detect.calibration.laws import Normal
from controller.detect.calibration.simulate import false_alarms, reference_arls
from controller.detect.streams.passes import rank
from controller.detect.streams.protocol import guaranteed_threshold
from controller.detect.streams.ranks import Rank, rank_detector, rank_edges
from tests.support.run_lengths import arl_at_least

RNG = np.random.default_rng(9)


def online(reference: int, streams: int) -> tuple[Rank, np.ndarray]:
    """A joining rank detector and one reference of normal units per stream."""
    edges = rank_edges(RNG.normal(size=100))
    return Rank(edges=tuple(edges.tolist()), counts=(0.0,) * (edges.size + 1)), RNG.normal(
        size=(streams, reference)
    )


def test_online_ranks_are_independent_and_uniform() -> None:
    """Shares of the reference above successive observations are uniform and uncorrelated."""
    detector, references = online(5, 4000)
    state, uppers = detector.with_references(references), []
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
def test_the_reference_holds_what_joined(values: list[float]) -> None:
    """After n observations the reference holds n more, each in its bin; a fixed reference stays as it was."""
    reference = np.random.default_rng(0).random(50)
    for joins in (True, False):
        detector = rank_detector(reference, joins=joins)
        state = detector.initial(1)
        for value in values:
            detector.advance(state, np.array([value]), np.ones(1, dtype=np.bool_))
        counts = state.memory[0, len(detector.shifts) + 3 :]
        bins = np.searchsorted(np.array(detector.edges), values, side="right")
        more = np.bincount(bins, minlength=counts.size) if joins else 0
        assert np.array_equal(counts, np.array(detector.counts) + more)


def test_online_ranks_keep_their_arl0() -> None:
    """Without a model and with small references, the run length's lower limit is not below ARL0."""
    detector, references = online(40, 1500)
    found = false_alarms(
        detector,
        guaranteed_threshold(500.0),
        Normal(),
        streams=1500,
        samples=1500,
        seed=2,
        begin=detector.with_references(references),
    )
    assert arl_at_least(found, 0.99) >= 500.0


def test_fixed_references_differ_in_their_arl0() -> None:
    """Conditional on a fixed reference ARL0 varies: the worst references fall below the declared one."""
    references = RNG.normal(size=(40, 200))
    edges = rank_edges(RNG.normal(size=100))
    found = reference_arls(
        edges, references, Normal(), guaranteed_threshold(1000.0), streams=60, samples=2000, seed=3
    )
    assert found.low < 1000.0 < found.median
    assert found.low <= found.harmonic_mean


def test_small_references_and_bad_edges_are_refused() -> None:
    """A reference below 20 units, and edges that do not ascend, are refused."""
    with pytest.raises(ValueError, match="at least 20"):
        rank_detector(np.zeros(5))
    with pytest.raises(ValueError, match="ascending"):
        Rank(edges=(1.0, 1.0), counts=(1.0, 1.0, 1.0))
    with pytest.raises(ValueError, match="counts"):
        Rank(edges=(1.0,), counts=(1.0,))
