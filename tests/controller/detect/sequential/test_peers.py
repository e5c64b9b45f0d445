"""Scrapes as evidence: each is one unit, weighed by the scrapes of the replica's peers."""

from __future__ import annotations

from dataclasses import replace

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.telemetry import Source
from controller.detect.detector import DetectorState
from controller.detect.sequential.detector import SequentialDetector
from controller.detect.sequential.evidence import SINCE_COUNT, SINCE_SUM
from controller.detect.sequential.peers import LEAST_RECEIVED, count_peers
from controller.detect.streams.protocol import update
from controller.detect.sums import COUNT
from tests.support.fleets.builders import Clause, make_contract, make_fleet, make_layout
from tests.support.fleets.sequential_detectors import logged, sequential_detector, slice_probe

FAILED_BY_SLICE = st.lists(st.integers(0, 5), min_size=4, max_size=4)


def test_a_scrape_is_one_unit_over_all_slices() -> None:
    """Failures on four slices in one scrape are one unit: the share of the scrape's requests that failed."""
    detector, state = scraped({0: [2, 2, 0, 0], 1: [0, 0, 0, 0]})
    alone = detector.plan.clauses.detector(0)
    _, statistic = update(alone, alone.initial(1), np.array([4.0 / 20.0]), np.array([True]))
    assert logged(state, "over_slices")[0, 0].item() == pytest.approx(statistic.item())
    assert state["over_slices"][0, 0, 0, 0, SINCE_COUNT:].tolist() == pytest.approx([1.0, 0.2])


def scraped(*failed: dict[int, list[int]]) -> tuple[SequentialDetector, DetectorState]:
    """Memory after ticks; each gives, by replica of a kernel of two, how many of five failed per slice."""
    layout = make_layout(kernels=1, slices=4, per_kernel=2)
    clause = Clause(source=Source.FAILED, threshold=0.1, hard=False)
    fleet = make_fleet(layout, contract=make_contract(layout, (clause,)), home=np.zeros(4, dtype=np.int64))
    detector = sequential_detector(fleet)
    state, closed = detector.initial(1, 2, fleet.contract), np.array([False])
    for tick in failed:
        sums = np.zeros((1, 2, 4, 1, 4))
        for replica, bad in tick.items():
            sums[0, replica, :, 0, 0], sums[0, replica, :, 0, 1] = 5.0, bad
        seen = replace(
            slice_probe(fleet, 0, np.nan),
            sums=sums,
            received=np.zeros((1, 1), dtype=np.bool_),
            subject_of=np.arange(2),
            doubted=np.zeros((1, 2, 4, 1), dtype=np.bool_),
        )
        _, state = detector.update(state, sums, closed, fleet.contract, seen)
    return detector, state


def test_only_peers_that_served_lately_are_counted() -> None:
    """A silent replica is no peer, nor is one with gauges alone, nor one of another kernel."""
    owner, traffic = np.array([0, 0, 0, 0, 1, 1]), np.array([True, False])
    sums, latest = np.zeros((2, 6, 2, 2, 4))
    latest[0, 1, 0, COUNT], sums[1, 0, 0, COUNT] = 3.0, 1.0
    latest[2, :, 1, COUNT], sums[2, :, 1, COUNT] = 9.0, 9.0
    latest[3, :, 0, COUNT], latest[4, 1, 0, COUNT] = LEAST_RECEIVED, 1.0
    received, news = np.full(6, 7), sums[..., COUNT].any(axis=2)
    count_peers(received, sums, news, latest, owner, traffic)
    assert received.tolist() == [1, 1, 2, 2, 0, 1]


def test_a_scrape_is_divided_by_its_peers_where_they_exceed_the_limit() -> None:
    """Beside a peer at four limits, four limits count as one: the kernel is at fault, not the replica."""
    for same_tick in (True, False):
        bad = {1: [2, 2, 2, 2]}
        ticks = ({0: [2, 2, 0, 0], **bad},) if same_tick else (bad, {0: [2, 2, 0, 0]})
        _, state = scraped(*ticks)
        sums = state["cells"][0, 0, :, 0, SINCE_SUM]
        assert sums.tolist() == pytest.approx([0.1, 0.1, 0.0, 0.0])
        assert state["over_slices"][0, 0, 0, 0, SINCE_SUM] == pytest.approx(0.05)


def test_a_replica_without_peers_is_no_evidence_of_a_departure() -> None:
    """No peer was scraped, so its scrapes are no evidence that it departs from them."""
    _, state = scraped({0: [5, 5, 5, 5]})
    assert logged(state).max() < 0.0
    assert logged(state, "over_slices").max() < 0.0


@hypothesis.settings(max_examples=50, deadline=None)
@given(own=FAILED_BY_SLICE, others=FAILED_BY_SLICE)
def test_peers_only_ever_weaken_the_evidence(own: list[int], others: list[int]) -> None:
    """The value that is bet on is at most the share itself, so the null of the clause still holds."""
    _, state = scraped({1: others}, {0: own})
    for slice_, failed in enumerate(own):
        assert state["cells"][0, 0, slice_, 0, SINCE_SUM] <= failed / 5.0 + 1e-12
