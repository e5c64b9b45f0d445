"""Time between gateway and server, by Little's law, and server times as clients saw them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from contracts.telemetry import HISTOGRAM_EDGES_MS, LATENCY_FAMILIES, EngineCounters, FleetTelemetry
from controller.perceive.on_the_way import as_clients_saw, follow_the_way
from controller.perceive.on_the_way_pass import BLOCK_COLUMNS, BLOCKS, LEAST_S
from tests.support.fleets.builders import make_layout, quiet_telemetry

LAYOUT = make_layout(kernels=1, slices=1, per_kernel=1)
FRESH = np.ones((1, 1), dtype=np.bool_)
BUCKETS = len(HISTOGRAM_EDGES_MS) + 1
LATENCY, INTER_TOKEN = LATENCY_FAMILIES.index("latency_ms"), LATENCY_FAMILIES.index("inter_token_ms")


def scrape(outside: float, finished: float, span_s: float = 5.0) -> FleetTelemetry:
    """A scrape with ``outside`` requests at the gateway but not in the engine; ``finished`` ended."""
    engine = EngineCounters.unknown(1, 1)
    engine.span_s[:], engine.finished[:] = span_s, finished
    return replace(quiet_telemetry(LAYOUT, 5.0), engine=engine, outside=np.full((1, 1), outside))


def after(*scrapes: FleetTelemetry) -> float:
    """Lateness of answers, in seconds, after these scrapes."""
    state: Any = SimpleNamespace(
        way_s=np.full((1, 1, BLOCKS), np.nan), way_block=np.zeros((1, 1, BLOCK_COLUMNS))
    )
    late_s = np.zeros((1, 1))
    for one in scrapes:
        way = follow_the_way(state, one, FRESH)
        state, late_s = SimpleNamespace(way_s=way.way_s, way_block=way.block), way.late_s
    return float(late_s[0, 0])


def test_the_way_is_requests_outside_the_engine_over_the_rate_of_ends() -> None:
    """19 ended in five seconds, about four a second, and 36 on the way: nine seconds."""
    late = scrape(outside=36.0, finished=19.0)
    assert after(late, late, late) == pytest.approx(9.0)


def test_it_does_not_depend_on_the_scrape_interval() -> None:
    """With one-second scrapes many see nothing end; the least value within a block counts."""
    each = [scrape(outside=6.0, finished=float(second % 5 == 0), span_s=1.0) for second in range(15)]
    assert after(*each) == pytest.approx(6.0 * 5.0 / 2.0)
    each[7] = scrape(outside=0.0, finished=0.0, span_s=1.0)
    assert after(*each) == 0.0


def test_the_least_of_three_scrapes_counts() -> None:
    """One or two bursts, or the first scrapes of a replica, do not count."""
    late, healthy = scrape(36.0, 19.0), scrape(0.0, 19.0)
    assert after(late, late) == 0.0
    assert after(late, healthy, late) == 0.0
    assert after(healthy, late, late, scrape(20.0, 19.0)) == pytest.approx(5.0)


def test_a_short_or_unknown_way_is_no_lateness() -> None:
    """No gateway data, no counters, or less than the time between two readings."""
    assert after(*3 * [scrape(np.nan, 19.0)]) == 0.0
    unknown = replace(scrape(36.0, 19.0), engine=EngineCounters.unknown(1, 1))
    assert after(*3 * [unknown]) == 0.0
    assert after(*3 * [scrape(0.9 * LEAST_S * 4.0, 19.0)]) == 0.0


def test_a_scrape_without_counters_spoils_only_its_block() -> None:
    """The first scrape of a process: what comes after it counts from there."""
    late, first = scrape(36.0, 19.0), replace(scrape(36.0, 19.0), engine=EngineCounters.unknown(1, 1))
    assert after(late, late, first) == 0.0
    assert after(first, late, late, late) == pytest.approx(9.0)


def test_where_nothing_ends_nothing_is_known() -> None:
    """An idle replica, one that was late before, and a hung one are neither known to be late nor in time."""
    late, idle, hung = scrape(36.0, 19.0), scrape(0.0, 0.0), scrape(12.0, 0.0)
    assert after(late, late, late, idle) == 0.0
    assert after(idle, late, late, late) == pytest.approx(9.0)
    assert after(hung, hung, hung) == 0.0


def test_without_a_new_scrape_nothing_changes() -> None:
    """A scrape shown again was counted already."""
    state: Any = SimpleNamespace(way_s=np.array([[[9.0, 8.0, 7.0]]]), way_block=np.array([[[6.0, 2.0, 3.0]]]))
    way = follow_the_way(state, scrape(0.0, 19.0), ~FRESH)
    assert (way.way_s == state.way_s).all()
    assert (way.block == state.way_block).all()
    assert way.late_s[0, 0] == 7.0


def later(le: NDArray[np.int64], late_s: float) -> NDArray[np.int64]:
    """Histograms ``le`` as clients saw them, ``late_s`` later."""
    telemetry = replace(quiet_telemetry(LAYOUT, 5.0), latency_le=le)
    return as_clients_saw(telemetry, np.array([[late_s]]), HISTOGRAM_EDGES_MS).latency_le


HISTOGRAMS = st.lists(st.integers(0, 30), min_size=BUCKETS, max_size=BUCKETS)


@given(HISTOGRAMS, st.floats(0.0, 130.0), st.floats(0.0, 130.0))
def test_later_answers_are_never_earlier(buckets: list[int], one_s: float, other_s: float) -> None:
    """Shifted histograms rise, keep their total, and fall as the way grows; token gaps are unchanged."""
    counts = np.cumsum(buckets)
    given_le = np.tile(counts, (1, 1, len(LATENCY_FAMILIES), 1))
    less, more = (later(given_le, s) for s in sorted((one_s, other_s)))
    assert (np.diff(less, axis=3) >= 0).all()
    assert (less[..., -1] == counts[-1]).all()
    assert (more <= less).all()
    assert (less <= given_le).all()
    assert (more[:, :, INTER_TOKEN] == given_le[:, :, INTER_TOKEN]).all()


def test_without_lateness_the_record_is_unchanged() -> None:
    """The same object is returned; a way as long as a bucket edge moves answers by that edge."""
    counts = np.cumsum(np.ones(BUCKETS, dtype=np.int64))
    le = np.tile(counts, (1, 1, len(LATENCY_FAMILIES), 1))
    telemetry = replace(quiet_telemetry(LAYOUT, 5.0), latency_le=le)
    assert as_clients_saw(telemetry, np.zeros((1, 1)), HISTOGRAM_EDGES_MS) is telemetry
    seen = later(le, 4.0)[0, 0, LATENCY]
    assert (telemetry.latency_le == le).all()
    at = HISTOGRAM_EDGES_MS.index(8000.0)
    assert seen[at] == le[0, 0, LATENCY, HISTOGRAM_EDGES_MS.index(4000.0)]
    assert seen[HISTOGRAM_EDGES_MS.index(2000.0)] == 0
