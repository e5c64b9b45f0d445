"""Edges of latency histograms: every threshold of a contract is an edge, and is judged there."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from contracts.compiled.build import compile_contract, edges_for, histogram_edge
from contracts.documents import KernelContract
from contracts.loading.loader import load_as
from contracts.telemetry import HISTOGRAM_EDGES_MS
from tests.contracts.compiled.test_build import clause, contract, layout
from tests.support.paths import LIBRARY


@given(st.floats(0.0, HISTOGRAM_EDGES_MS[-1]))
def test_the_edge_is_the_smallest_at_or_above(threshold_ms: float) -> None:
    """No request within the threshold is counted as over it, and the next lower edge would be too low."""
    edge = histogram_edge(threshold_ms)
    assert HISTOGRAM_EDGES_MS[edge] >= threshold_ms
    assert edge == 0 or HISTOGRAM_EDGES_MS[edge - 1] < threshold_ms


def _on_first_tokens(*thresholds_ms: float) -> KernelContract:
    each = enumerate(thresholds_ms)
    rows = [clause("ttft_ms_p95", id=f"R-{at}", threshold=ms, estimator="none") for at, ms in each]
    return contract(*rows)


def _edges_of(*thresholds_ms: float) -> tuple[float, ...]:
    return edges_for(_on_first_tokens(*thresholds_ms))


def test_thresholds_replace_the_nearest_edges() -> None:
    """300 ms is judged at 300 ms; shipped thresholds are edges already and change none."""
    expected = [300.0 if edge == 250.0 else edge for edge in HISTOGRAM_EDGES_MS]
    assert _edges_of(300.0) == tuple(expected)
    assert _edges_of(2000.0, 80.0, 15000.0) == HISTOGRAM_EDGES_MS
    for name in ("serving-pool", "serving-pool-full-vocab", "serving-generation", "rl-post-training"):
        shipped = load_as(KernelContract, LIBRARY / f"{name}.yaml")
        assert edges_for(shipped) == HISTOGRAM_EDGES_MS, name


@given(st.lists(st.floats(0.1, HISTOGRAM_EDGES_MS[-1]), min_size=1, max_size=15))
def test_every_threshold_is_an_edge_and_their_number_is_kept(thresholds_ms: list[float]) -> None:
    """Edges ascend, the last one stays, and each compiled clause has its own threshold's edge."""
    edges = _edges_of(*thresholds_ms)
    assert len(edges) == len(HISTOGRAM_EDGES_MS)
    assert all(low < high for low, high in pairwise(edges))
    assert edges[-1] == HISTOGRAM_EDGES_MS[-1]
    assert set(thresholds_ms) <= set(edges)
    found = compile_contract(_on_first_tokens(*thresholds_ms), replace(layout(), edges_ms=edges))
    assert [edges[at] for at in found.edge] == thresholds_ms


def test_a_threshold_beyond_the_last_edge_has_none() -> None:
    """Beyond the histogram nothing can be judged."""
    assert histogram_edge(HISTOGRAM_EDGES_MS[-1] + 1.0) == -1
