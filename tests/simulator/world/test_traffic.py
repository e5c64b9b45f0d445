"""The load that a scenario declares, with ordinary surges, relative to its replicas' capacity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.workload.azure_trace import load_trace
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import load_scenario
from simulator.world.traffic import declared_load_ratio, declared_peak_rps
from tests.support.fleets.synthetic import scenario_document, write_world

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def world(folder: Path, *, changes: Any = (), faults: Any = (), **workload: Any) -> CompiledScenario:
    """A world of two minutes with these arrivals, ordinary changes and faults."""
    document: Any = scenario_document(horizon_s=120.0)
    document["spec"]["workload"] |= workload
    document["spec"] |= {"changes": list(changes), "faults": list(faults)}
    return load_scenario(write_world(folder, document))


SURGE = {"kind": "surge", "at_s": 20.0, "duration_s": 30.0, "factor": 1.5}


@pytest.mark.parametrize(
    ("more", "peak_rps"),
    [
        ({}, 4.0),
        ({"arrivals": "surge", "surge": {"at_s": 10.0, "duration_s": 5.0, "factor": 2.5}}, 10.0),
        ({"arrivals": "surge", "surge": {"at_s": 500.0, "duration_s": 5.0, "factor": 2.5}}, 4.0),
        ({"changes": [SURGE]}, 6.0),
        ({"changes": [SURGE, SURGE | {"at_s": 40.0}]}, 9.0),
        ({"faults": [{"name": "s", "kind": "load_surge", "dose": 3.0, "onset_s": 30.0}]}, 4.0),
    ],
)
def test_the_peak_is_that_of_arrivals_and_ordinary_surges(
    more: dict[str, Any], peak_rps: float, tmp_path: Path
) -> None:
    """A surge multiplies the rate while it lasts; beyond the horizon or as a fault it does not count."""
    found = declared_peak_rps(world(tmp_path, rate_rps=4.0, **more))
    assert found.sum() == pytest.approx(peak_rps)
    assert (found >= 0.0).all()


def test_the_peak_of_a_trace_is_its_busiest_minute(tmp_path: Path) -> None:
    """Fifty requests within five seconds of a slow trace, at its own pace: fifty of them a minute."""
    times = [*np.linspace(0.0, 110.0, 12), *np.linspace(111.0, 116.0, 50)]
    rows = [f"2023-11-16 18:{int(t // 60):02d}:{t % 60:010.7f},100,10" for t in times]
    (tmp_path / "trace.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    pace_rps = load_trace(tmp_path / "trace.csv").mean_rate_rps
    found = world(tmp_path, arrivals="trace", trace_uri="trace.csv", rate_rps=pace_rps)
    assert declared_peak_rps(found).sum() == pytest.approx((50 + 6 + 1) / 60.0)  # it begins anew


def test_the_ratio_is_relative_to_the_declared_replicas(tmp_path: Path) -> None:
    """Replicas added by a later scale-up carry nothing yet."""
    plain = world(tmp_path, rate_rps=4.0)
    carried = plain.capacity_rps[plain.layout.replica_kernel].sum()
    assert declared_load_ratio(plain) == pytest.approx(4.0 / carried)
    kernel = plain.layout.kernels[0]
    scaled = world(
        tmp_path,
        rate_rps=4.0,
        changes=[{"kind": "scale_up", "at_s": 50.0, "kernel": kernel, "cold_start_s": 5.0}],
    )
    assert scaled.absent.any()
    assert declared_load_ratio(scaled) == pytest.approx(declared_load_ratio(plain))
