"""Calibrated thresholds of traffic clauses: the table that ships, and how it is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.compiled import Source
from contracts.detect.eprocess import Betting, exceedances
from contracts.detect.protocol import Floats
from contracts.detect.traffic import SHIPPED, TrafficCalibration, parse_traffic
from contracts.errors import DocumentError
from contracts.uris import resolve_uri
from controller.sequential_plan import sequential_plan
from policies.baselines import make_arm, shipped_traffic
from policies.rehearsal import rehearsal_fleet
from scripts.detect_calibrate import calibrated, markdown, table
from scripts.detect_telemetry import BLOCK, alarms_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "detection.md"


def shipped_text() -> str:
    """The table that ships."""
    return Path(resolve_uri(SHIPPED, "tests")).read_text()


def rows() -> list[dict[str, Any]]:
    """Its streams."""
    return list(json.loads(shipped_text())["streams"])


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row['kind']}-{row['unit']}")
def test_calibrated_thresholds_keep_their_arl0_on_fleets_they_have_not_seen(row: dict[str, Any]) -> None:
    """At least 0.9 of the declared ARL0 was measured, lower limit included; taken as independent, less."""
    for check in row["checks"]:
        assert check["calibrated"]["arl0"] >= 0.9 * check["arl0"]
        assert check["calibrated"]["low"] >= 0.9 * check["arl0"]
    longest = row["checks"][-1]
    assert longest["independent"]["high"] < 0.9 * longest["arl0"]


def test_thresholds_rise_with_the_arl0() -> None:
    """Points are met exactly; between and beyond them thresholds rise; inf (no stream) stays inf."""
    for stream in shipped_traffic().streams:
        np.testing.assert_allclose(stream.level(stream.arl0), stream.threshold)
        levels = stream.level(np.geomspace(2.0, 1e12, 200))
        assert bool((np.diff(levels) >= 0.0).all())
        assert np.isinf(stream.level(np.array([np.inf]))).all()


def test_only_clauses_with_a_stream_take_calibrated_thresholds() -> None:
    """Probes keep the guaranteed threshold, failures the stated factor; latency and KV use take the table."""
    fleet = rehearsal_fleet(3, 2, 6)
    stated, found = sequential_plan(fleet), sequential_plan(fleet, traffic=shipped_traffic())
    source = fleet.contract.source
    known = np.isin(source, [int(Source.LATENCY), int(Source.KV_USED)])
    for name in ("replica", "kernel", "anywhere"):
        one, other = getattr(stated.thresholds, name), getattr(found.thresholds, name)
        assert np.array_equal(one[..., ~known], other[..., ~known])
        finite = np.isfinite(one) & known
        assert bool((other[finite] != one[finite]).all())
    arm = make_arm("sequential", fleet).detector
    assert np.array_equal(arm.plan.thresholds.kernel, found.thresholds.kernel)  # type: ignore[attr-defined]


def test_the_procedure_calibrates_a_law_with_long_runs() -> None:
    """On 0/1 units that persist, thresholds from half of the series keep the ARL0 on the other half."""
    rng = np.random.Generator(np.random.PCG64(4))
    stay, rate = 0.7, 0.05
    fleets = []
    for _ in range(40):
        fresh = (rng.random(3000) < rate).astype(np.float64)
        kept = rng.random(3000) < stay
        place = np.maximum.accumulate(np.where(kept, 0, np.arange(3000)))
        fleets.append([fresh[place]])
    found = calibrated(fleets, fleets)
    assert found["correlation"] == pytest.approx(stay, abs=0.05)
    first = found["checks"][0]
    assert first["calibrated"]["arl0"] >= 0.9 * first["arl0"]
    assert first["independent"]["arl0"] < 0.6 * first["arl0"]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.pop("streams"),
        lambda data: data["streams"][0].update(kind="weather"),
        lambda data: data["streams"][0]["points"].reverse(),
        lambda data: data["streams"][0].update(points=data["streams"][0]["points"][:1]),
        lambda data: data.update(streams=[row for row in data["streams"] if row["unit"] == "kernel"]),
        lambda data: data.pop("provenance"),
    ],
)
def test_a_table_that_is_none_is_refused(change: Any) -> None:
    """What is missing, unknown or out of order is named, with the command that writes the table anew."""
    data = json.loads(shipped_text())
    change(data)
    with pytest.raises(DocumentError, match="detect_calibrate"):
        parse_traffic(json.dumps(data), "table.json")


def count_alarms(detector: Betting, threshold: float, units: Floats) -> tuple[int, int]:
    """Alarms on one series, and the units that were watched for them."""
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


def test_alarms_of_all_series_at_once_are_those_of_each() -> None:
    """Counted together, fleets of unequal series give the alarms and units of series watched one by one."""
    rng, detector = np.random.Generator(np.random.PCG64(6)), exceedances(0.05)
    fleets = [[(rng.random(size) < 0.06).astype(np.float64) for size in (900, 1200)] for _ in range(3)]
    single = [np.sum([count_alarms(detector, 3.0, one) for one in fleet], axis=0) for fleet in fleets]
    assert alarms_of(detector, 3.0, fleets).tolist() == np.array(single).tolist()
    assert min(int(alarms) for alarms, _ in single) > 0


def test_the_same_command_writes_the_same_bytes() -> None:
    """A small table twice: not a byte differs, and it is not the one of more fleets."""
    first, second = (json.dumps(table(fleets=2, runs=100), sort_keys=True) for _ in range(2))
    assert first == second
    assert {row["points"][0]["threshold"] for row in json.loads(first)["streams"]} != {
        row["points"][0]["threshold"] for row in rows()
    }


def test_the_table_says_where_it_comes_from() -> None:
    """Command, seed and the hashes of scenario and profiles stand beside the numbers."""
    found: TrafficCalibration = shipped_traffic()
    assert {"command", "seed", "fleets", "scenario_sha256", "profile_sha256"} <= set(found.provenance)


def test_the_page_shows_the_table_that_ships() -> None:
    """The page's table is made of the shipped one."""
    assert markdown(json.loads(shipped_text())) in PAGE.read_text()
