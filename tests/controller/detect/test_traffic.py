"""Calibrated thresholds of traffic clauses: the table that ships, and how it is read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.errors import DocumentError
from contracts.loading.uris import resolve_uri
from contracts.telemetry import Source
from controller.detect.sequential.plan import SequentialSettings, sequential_plan
from controller.detect.streams.eprocess import Betting, exceedances
from controller.detect.streams.protocol import Floats
from controller.detect.traffic import (
    SHIPPED,
    TrafficCalibration,
    TrafficStream,
    parse_traffic,
    shipped_traffic,
)
from policies.registry import make_configuration
from policies.synthetic_fleet import synthetic_fleet
from scripts.studies.detection import calibrate as detect_calibrate
from scripts.studies.detection.calibrate import calibrated, far, markdown, table
from scripts.studies.detection.telemetry import BLOCK, alarms_of
from tests.support.fleets.builders import make_fleet, make_layout
from tests.support.paths import DOCS

#: Largest declared ARL0 at which a check has enough alarms to test its lower limit too.
LONGEST = 20_000.0
PAGE = DOCS / "detection-results.md"


def shipped_text() -> str:
    """The table that ships."""
    return Path(resolve_uri(SHIPPED, "tests")).read_text()


def rows() -> list[dict[str, Any]]:
    """Streams of the table that ships."""
    return list(json.loads(shipped_text())["streams"])


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row['kind']}-{row['unit']}-{row['replicas']}")
def test_calibrated_thresholds_keep_their_arl0_on_unseen_fleets(row: dict[str, Any]) -> None:
    """At least 0.9 of every declared ARL0 is measured, the lower limit included where alarms are enough."""
    for check in row["checks"]:
        assert check["calibrated"]["arl0"] >= 0.9 * check["arl0"]
        if check["arl0"] <= LONGEST:
            assert check["calibrated"]["low"] >= 0.9 * check["arl0"]
    if row["replicas"] <= 4:
        assert row["checks"][-1]["independent"]["high"] < 0.9 * row["checks"][-1]["arl0"]


def test_thresholds_rise_with_the_arl0() -> None:
    """Points are met exactly; between and beyond them thresholds rise; inf (no stream) stays inf."""
    for stream in shipped_traffic().streams:
        np.testing.assert_allclose(stream.level(stream.arl0), stream.threshold)
        levels = stream.level(np.geomspace(2.0, 1e12, 200))
        assert bool((np.diff(levels) >= 0.0).all())
        assert np.isinf(stream.level(np.array([np.inf]))).all()


def test_beyond_the_points_thresholds_follow_the_line_of_the_last_three() -> None:
    """The line goes from the last point but two to the last; with two points, through both."""
    for points, slope in ((4, 3.0), (3, 3.0), (2, 4.0)):
        stream = TrafficStream(
            kind="ttft_ms",
            unit="replica",
            replicas=2,
            arl0=np.exp(np.arange(5.0 - points, 5.0)),
            threshold=np.array([1.0, 2.0, 4.0, 8.0])[-points:],
        )
        assert stream.level(np.exp(np.array([14.0]))).item() == pytest.approx(8.0 + 10.0 * slope)


def test_other_replica_counts_take_the_higher_neighbouring_level() -> None:
    """Five to seven replicas: the higher level of four and eight; beyond the table: at least log ARL0."""
    contract, found = synthetic_fleet(3, 2, 6).contract, shipped_traffic()
    arl0 = np.full(len(contract.clause_ids), 1e7)
    four, six, eight, most, more = (
        found.levels(arl0, contract, "replica", count) for count in (4, 6, 8, 16, 40)
    )
    np.testing.assert_array_equal(six, np.maximum(four, eight))
    np.testing.assert_array_equal(more, np.maximum(most, np.where(np.isnan(most), np.nan, np.log(1e7))))
    assert np.isfinite(six).any()


def test_a_replicas_threshold_is_that_of_its_number_of_peers() -> None:
    """Replica streams go by the peers received, kernel streams by the replicas of the kernel."""
    fleet, known = synthetic_fleet(2, 2, 7), shipped_traffic()
    plan = sequential_plan(fleet, SequentialSettings(traffic=known))
    latency = np.flatnonzero(fleet.contract.source == int(Source.LATENCY))
    for received in range(3):
        wanted = known.levels(plan.split.replica_arl0, fleet.contract, "replica", received + 2)
        assert np.array_equal(plan.thresholds.replica[received][..., latency], wanted[..., latency])
    for kernel, count in enumerate((4, 3)):
        wanted = known.levels(plan.split.kernel_arl0[kernel], fleet.contract, "kernel", count)
        assert np.array_equal(plan.thresholds.kernel[kernel][:, latency], wanted[:, latency])
    replica, over_slices = plan.thresholds.beside_all(plan.owner)
    for one, received in ((0, 2), (1, 1)):
        assert np.array_equal(replica[one], plan.thresholds.replica[received, one])
        assert np.array_equal(over_slices[one], plan.thresholds.over_slices[received, one])


def test_a_last_kernel_without_replicas_has_thresholds_too() -> None:
    """A kernel scaled to no replicas has a row of thresholds as well."""
    fleet = make_fleet(make_layout(kernels=3, slices=2, per_kernel=2))
    owner = fleet.layout.replica_kernel
    moved = replace(fleet.layout, replica_kernel=np.where(owner == 2, 0, owner))
    plan = sequential_plan(replace(fleet, layout=moved), SequentialSettings(traffic=shipped_traffic()))
    assert plan.thresholds.kernel.shape[0] == 3


def test_only_clauses_with_a_stream_take_calibrated_thresholds() -> None:
    """Probes keep the guaranteed threshold, failures the stated factor; latency and KV use take the table."""
    fleet = synthetic_fleet(3, 2, 6)
    settings = SequentialSettings(traffic=shipped_traffic())
    stated, found = sequential_plan(fleet), sequential_plan(fleet, settings)
    source = fleet.contract.source
    known = np.isin(source, [int(Source.LATENCY), int(Source.KV_USED)])
    for name in ("replica", "kernel", "over_slices"):
        one, other = getattr(stated.thresholds, name), getattr(found.thresholds, name)
        assert np.array_equal(one[..., ~known], other[..., ~known])
        finite = np.isfinite(one) & known
        assert bool((other[finite] != one[finite]).all())
    configuration = make_configuration("sequential", fleet).detector
    assert np.array_equal(configuration.plan.thresholds.kernel, found.thresholds.kernel)  # type: ignore[attr-defined]


def test_the_procedure_calibrates_persistent_units() -> None:
    """For persistent 0/1 units, thresholds from forty series keep the ARL0 on forty others."""
    learned, other = _persistent(4), _persistent(5)
    mean = float(np.mean([one.mean() for fleet in learned for one in fleet]))
    found = calibrated(learned, other, other, mean)
    assert found["correlation"] == pytest.approx(0.7, abs=0.05)
    first = found["checks"][0]
    assert first["calibrated"]["arl0"] >= 0.9 * first["arl0"]
    assert first["independent"]["arl0"] < 0.6 * first["arl0"]


def test_an_arl0_beyond_the_recording_is_refused() -> None:
    """A threshold whose ARL0 lies beyond everything recorded is refused, not extrapolated."""
    with pytest.raises(ValueError, match="within what was recorded"):
        calibrated(_persistent(4)[:10], _persistent(5), _persistent(5), 0.05)


def _persistent(seed: int) -> list[list[Floats]]:
    """Forty series of 4,000 0/1 units of rate 0.05, each a copy of the one before with probability 0.7."""
    rng, fleets = np.random.Generator(np.random.PCG64(seed)), []
    for _ in range(40):
        fresh = (rng.random(4000) < 0.05).astype(np.float64)
        kept = rng.random(4000) < 0.7
        fleets.append([fresh[np.maximum.accumulate(np.where(kept, 0, np.arange(4000)))]])
    return fleets


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.pop("streams"),
        lambda data: data["streams"][0].update(kind="weather"),
        lambda data: data["streams"][0]["points"].reverse(),
        lambda data: data["streams"].append(data["streams"][0]),
        lambda data: data["streams"][0].update(points=data["streams"][0]["points"][:1]),
        lambda data: data.update(streams=[row for row in data["streams"] if row["unit"] == "kernel"]),
        lambda data: data.pop("provenance"),
    ],
)
def test_an_invalid_table_is_refused(change: Any) -> None:
    """The error names the missing, unknown or unordered part and the command that rewrites the table."""
    data = json.loads(shipped_text())
    change(data)
    with pytest.raises(DocumentError, match=r"studies\.detection\.calibrate"):
        parse_traffic(json.dumps(data), "table.json")


def count_alarms(detector: Betting, threshold: float, units: Floats) -> tuple[int, int]:
    """Alarms on one series, and the units that were observed for them."""
    state, present, count, watched, skip = detector.initial(1), np.ones(1, dtype=np.bool_), 0, 0, 0
    for value in units:
        if skip:
            skip -= 1
            continue
        watched += 1
        detector.advance(state, np.array([value]), present)
        if state.statistic[0] >= threshold:
            state, count, skip = detector.initial(1), count + 1, BLOCK
    return count, watched


def test_counting_all_series_together_equals_counting_each() -> None:
    """Counted together, fleets of unequal series give the alarms and units of the series one by one."""
    rng, detector = np.random.Generator(np.random.PCG64(6)), exceedances(0.05)
    fleets = [[(rng.random(size) < 0.06).astype(np.float64) for size in (900, 1200)] for _ in range(3)]
    single = [np.sum([count_alarms(detector, 3.0, one) for one in fleet], axis=0) for fleet in fleets]
    found = alarms_of(detector, np.array([3.0, 60.0, 70.0]), fleets)
    assert found[0].tolist() == np.array(single).tolist()
    assert min(int(alarms) for alarms, _ in single) > 0
    assert found[1:].tolist() == [[[0, 2100]] * 3] * 2


def test_the_same_command_writes_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same small table twice is equal byte for byte, and differs from one of more fleets."""
    monkeypatch.setattr(detect_calibrate, "POINTS", np.array([100.0, 300.0]))
    first, second = (json.dumps(table({1: 2, 2: 2}), sort_keys=True) for _ in range(2))
    assert first == second
    assert {row["points"][0]["threshold"] for row in json.loads(first)["streams"]} != {
        row["points"][0]["threshold"] for row in rows()
    }


def test_beyond_the_points_every_replica_stream_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row per stream with alarms and a ratio; at a lower ARL0 the same fleets give more alarms."""
    alarms = []
    for arl0 in (200.0, 1e6):
        monkeypatch.setattr(detect_calibrate, "FAR", arl0)
        lines = far(shipped_traffic(), 2, 2).splitlines()
        alarms.append(sum(int(line.split("|")[2]) for line in lines))
        assert len(lines) == 4
    assert alarms[0] > 20 > alarms[1]


def test_the_table_states_its_provenance() -> None:
    """Command, seed and the hashes of scenario and profiles accompany the numbers."""
    found: TrafficCalibration = shipped_traffic()
    assert {"command", "seed", "fleets", "scenario_sha256", "profile_sha256"} <= set(found.provenance)


def test_the_page_shows_the_table_that_ships() -> None:
    """The table on the page is generated from the shipped one."""
    assert markdown(json.loads(shipped_text())) in PAGE.read_text()
