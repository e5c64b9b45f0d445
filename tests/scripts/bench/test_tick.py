"""The benchmark of the control tick returns its promised figures."""

from __future__ import annotations

import json

import pytest

from scripts.bench import tick as bench_tick


def test_figures_are_flat_and_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every promised key is there, times are positive, and the object is plain JSON."""
    for name, value in (("TICKS", 3), ("FLEETS", 2), ("KERNELS", 3), ("REPLICAS", 6)):
        monkeypatch.setattr(bench_tick, name, value)
    figures = bench_tick.run()
    assert {"tick_ms_p50", "tick_ms_p99", "tick_ms_per_fleet_64", "kernels", "slices", "seed"} <= set(figures)
    assert all(isinstance(value, int | float) and value > 0 for value in figures.values())
    assert json.loads(json.dumps(figures)) == figures
