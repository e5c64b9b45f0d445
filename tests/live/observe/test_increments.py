"""Increments between two scrapes: unknown stays unknown, nothing counts twice, late is a safe bound."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.telemetry import HISTOGRAM_EDGES_MS, LATENCY_FAMILIES, EngineCounters
from live.observe.increments import Increments, count, on_record_edges, unknown_increments
from live.observe.metrics import COUNTERS, EngineReading
from tests.support.servers.engine_readings import Histogram, Said

FIELDS = [entry.name for entry in fields(EngineCounters)]
risen = st.dictionaries(st.sampled_from(sorted(COUNTERS)), st.floats(0.0, 1e6), min_size=1)
edges = st.lists(st.floats(1e-3, 100.0), min_size=1, max_size=20, unique=True).map(
    lambda found: (*sorted(found), float("inf"))
)


def reading(counters: dict[str, float], at_s: float, **changes: Any) -> EngineReading:
    """A reading with nothing but ``counters``."""
    return Said(read_at_s=at_s, counters=counters, **changes).reading()


def increments(before: EngineReading | None, now: EngineReading) -> Increments:
    """Increments from ``before`` to ``now`` of one replica; a new process's first scrape is unknown."""
    found = unknown_increments()
    if before is not None:
        count(before, now, found.engine[0], found.latency_le[0], HISTOGRAM_EDGES_MS)
    return found


@given(risen, risen)
def test_increments_add_up(first: dict[str, float], second: dict[str, float]) -> None:
    """Two steps count what one long step counts."""
    start = dict.fromkeys(COUNTERS, 0.0)
    middle = {name: first.get(name, 0.0) for name in COUNTERS}
    end = {name: middle[name] + second.get(name, 0.0) for name in COUNTERS}
    readings = [reading(counters, float(at)) for at, counters in enumerate((start, middle, end))]
    steps = [increments(readings[0], readings[1]), increments(readings[1], readings[2])]
    whole = increments(readings[0], readings[2])
    assert np.allclose(steps[0].engine + steps[1].engine, whole.engine, rtol=1e-9)


@given(risen)
def test_a_new_process_and_a_counter_that_falls_are_unknown(counted: dict[str, float]) -> None:
    """The first scrape of a process, a restart and a reset count nothing."""
    late = {name: value + 1.0 for name, value in counted.items()}
    now = reading(counted, 2.0)
    for before in (None, reading(counted, 1.0, started_at_s=0.5), reading(late, 1.0), reading(counted, 2.0)):
        found = increments(before, now)
        assert np.isnan(found.engine).all()
        assert not found.latency_le.any()


@given(risen, st.sampled_from(sorted(COUNTERS)))
def test_a_name_that_is_missing_is_unknown_and_the_others_are_not(
    counted: dict[str, float], missing: str
) -> None:
    """A renamed counter affects no other."""
    before, now = dict.fromkeys(COUNTERS, 0.0), {name: counted.get(name, 0.0) for name in COUNTERS}
    del before[missing]
    found = increments(reading(before, 1.0), reading(now, 2.0))
    assert np.isnan(found.engine[0, FIELDS.index(missing)])
    assert np.isfinite(np.delete(found.engine[0], FIELDS.index(missing))).all()


@given(edges, st.lists(st.floats(1e-4, 200.0), max_size=50))
def test_late_lies_between_what_surely_was_and_what_may_have_been(
    edges_s: tuple[float, ...], times_s: list[float]
) -> None:
    """For any bucket edges of a server: in time are at least the requests up to the edge below, at most those
    up to the edge above; all are counted, and none are estimated beyond the first and last edge.
    """
    times = np.array(times_s)
    counts = np.array([(times <= edge).sum() for edge in edges_s], dtype=np.float64)
    told = on_record_edges(edges_s, counts)
    for told_le, edge in zip(told, (*np.array(HISTOGRAM_EDGES_MS) / 1000.0, np.inf), strict=True):
        above = next(bound for bound in edges_s if bound >= edge * (1.0 - 1e-9))
        below = max((bound for bound in edges_s if bound < edge), default=0.0)
        assert (times <= below).sum() <= told_le <= (times <= above).sum()
        if below == 0.0 or above == np.inf:
            assert told_le == (times <= above).sum()
    assert told[-1] == times.size
    assert (np.diff(told) >= 0).all()


@pytest.mark.parametrize("objective_ms", [300.0, 350.0, 2000.0])
def test_an_objective_between_two_edges_is_judged_where_it_lies(objective_ms: float) -> None:
    """Of a thousand answers with logarithms spread evenly around it, as many are late as truly were."""
    edges_ms = tuple(sorted({*HISTOGRAM_EDGES_MS, objective_ms}))
    exported = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, np.inf)
    times = np.geomspace(0.1, 5.0, 1000)
    counts = np.array([(times <= edge).sum() for edge in exported], dtype=np.float64)
    late = 1000 - on_record_edges(exported, counts, edges_ms)[edges_ms.index(objective_ms)]
    assert abs(late - (times > objective_ms / 1000.0).sum()) <= 2


def test_equal_edges_lose_nothing() -> None:
    """A server with the record's own edges is read exactly."""
    own = (*(edge / 1000.0 for edge in HISTOGRAM_EDGES_MS), float("inf"))
    counts = np.arange(1.0, len(own) + 1.0).astype(np.float64)
    assert on_record_edges(own, counts).tolist() == counts.tolist()


def test_changed_edges_are_unknown() -> None:
    """A server with changed edges is not subtracted from its earlier counts."""
    family = LATENCY_FAMILIES[0]
    before = reading({}, 1.0, histograms={family: Histogram((0.1, np.inf), (0.0, 0.0))})
    now = reading({}, 2.0, histograms={family: Histogram((0.2, np.inf), (5.0, 9.0))})
    assert not increments(before, now).latency_le.any()


@given(edges, st.data())
def test_a_histogram_counts_what_came_between(edges_s: tuple[float, ...], data: st.DataObject) -> None:
    """The record's row is the increase of the server's counts on its edges; unknown if one of them fell."""
    numbers = st.lists(st.integers(0, 2**40), min_size=len(edges_s), max_size=len(edges_s))
    old, new = (np.array(data.draw(numbers), dtype=np.float64) for _ in range(2))
    family = LATENCY_FAMILIES[1]
    found = increments(
        reading({}, 1.0, histograms={family: Histogram(edges_s, tuple(old))}),
        reading({}, 2.0, histograms={family: Histogram(edges_s, tuple(new))}),
    )
    fell = bool((new < old).any())
    expected = np.zeros(len(HISTOGRAM_EDGES_MS) + 1) if fell else on_record_edges(edges_s, new - old)
    assert found.latency_le[0, 1].tolist() == expected.tolist()
    assert not found.latency_le[0, [0, 2]].any()
