"""Calibrate the thresholds of traffic clauses on simulated telemetry: ``python -m scripts.detect_calibrate``.

Fault-free fleets of four measured replicas run at a load where queues form, with sessions that stick and
three slices, one of which has few requests. A unit is the share of a scrape's requests over the histogram
edge that comes nearest to a clause's 5 %, or KV use over its own 95 % point; of replicas, weighed by their
siblings' last scrapes as the sequential detector does. The null is that law at its mean: the least
favourable one that is still healthy. Thresholds are found on blocks of the first half of the fleets, and
alarms are counted on the second half: units alone, as if independent and with the stated factor, and
calibrated.

Nothing healthy ever fails, so clauses on failures, fingerprints and trace fields have no law to record.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from contracts.compiled import Source
from contracts.detect.calibrate import block_threshold
from contracts.detect.clauses import Kind
from contracts.detect.eprocess import exceedances
from contracts.detect.protocol import Floats
from contracts.detect.traffic import KINDS, SHIPPED, TrafficCalibration, parse_traffic
from contracts.layout import HISTOGRAM_EDGES_MS
from contracts.telemetry import FleetTelemetry
from contracts.uris import resolve_uri
from controller.siblings_compiled import note_scrapes, weigh_by_siblings
from scripts.detect_telemetry import (
    BLOCK,
    HORIZON_S,
    RATE_RPS,
    REPLICAS,
    ScrapeWatcher,
    alarms_of,
    fleet_limits,
    queues,
)
from scripts.output import write_whole
from simulator.fleet import run_episodes

SEED, FLEETS, BATCH, RUNS = 11, 192, 24, 2000
#: Fleets that the shipped table is followed on, by replicas, and at which declared ARL0.
FOLLOW_SEED, FOLLOW_FLEETS, FOLLOWED = 10_011, {4: 240, 2: 240}, (20_000.0, 100_000.0)
#: Declared ARL0 of the calibrated points, in scrapes, and those that are checked on other fleets.
POINTS, CHECKED = (100.0, 300.0, 1000.0, 3000.0, 20_000.0), (500.0, 2000.0)
#: Edges that about 5 % of the requests are over at this load, in ms, and the share of scrapes that are over
#: the edge of KV use.
EDGES_MS, RATE = (8000.0, 80.0, 20.0), 0.05
#: What thresholds were raised by before there was a table.
OLD_FACTOR = 14.0
#: Places in the contract of the slices that the recorded fleet serves: with 32 requests a scrape, 16 and 5.
SLICES = [0, 2, 4]
BUSY, MIDDLE, THIN = 0, 1, 2
#: Memory of the siblings' last scrapes, in s: the window of the shipped contract, twice as fast.
MEMORY_S = 30.0
#: Of each unit of the table: the slice whose law it is, and whether siblings are heard.
LAWS = {"replica": (THIN, True), "anywhere": (MIDDLE, True), "kernel": (BUSY, False)}


class _Limits(NamedTuple):
    """What ``weigh_by_siblings`` reads of a plan, for the kinds of ``KINDS`` at their own means."""

    source: NDArray[np.int64]
    kind: NDArray[np.int64]
    is_rate: NDArray[np.bool_]
    applies: NDArray[np.bool_]
    mirrored: NDArray[np.bool_]
    upper: Floats
    clip: Floats
    null_mean: Floats


@dataclass(slots=True)
class _SliceWatcher(ScrapeWatcher):
    """Writes down (requests, over the edge) of every new scrape, float32 [B, R, S, kinds, 2]."""

    seen: list[NDArray[np.float32]] = field(default_factory=list)

    def note(self, telemetry: FleetTelemetry, fresh: NDArray[np.bool_]) -> None:
        """See ``ScrapeWatcher``. KV use stands where the count of those over will be."""
        le = telemetry.latency_le[:, : self.replicas, SLICES]
        cell = np.ones((*le.shape[:3], len(KINDS), 2), dtype=np.float32)
        for place, edge in enumerate(EDGES_MS):
            cell[..., place, 0] = le[..., place, -1]
            cell[..., place, 1] = le[..., place, -1] - le[..., place, HISTOGRAM_EDGES_MS.index(edge)]
        cell[..., -1, 1] = telemetry.kv_used_ratio[:, : self.replicas, None]
        cell[~fresh] = 0.0
        self.seen.append(cell)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Healthy telemetry: seen float32 [B, T, R, S, kinds, 2], requests and those over, 0 without a scrape."""

    seen: NDArray[np.float32]
    scenario_sha256: str
    profile_sha256: tuple[str, ...]


def record(fleets: int, *, seed: int = SEED, replicas: int = REPLICAS) -> Recorded:
    """Run ``fleets`` fleets without a fault, from ``seed`` on."""
    scenario, sha256 = queues(mixed=True, replicas=replicas)
    parts = []
    for first in range(0, fleets, BATCH):
        watcher = _SliceWatcher(scenario, replicas=replicas)
        seeds = range(seed + first, seed + min(first + BATCH, fleets))
        run_episodes(scenario, watcher, seeds, batch=BATCH)
        parts.append(np.stack(watcher.seen, axis=1))
    seen = np.concatenate(parts)
    full = seen[..., -1, 1]
    full[:] = full > np.quantile(full[seen[..., -1, 0] > 0.0], 1.0 - RATE)
    return Recorded(seen=seen, scenario_sha256=sha256, profile_sha256=scenario.profile_sha256)


def series_of(seen: Recorded, unit: str) -> list[tuple[list[list[Floats]], list[list[Floats]]]]:
    """Of each kind: units alone and beside siblings, by fleet and series, scrape by scrape."""
    place, compared = LAWS[unit]
    cells = seen.seen[:, :, :, place : place + 1]
    sums = np.zeros((*cells.shape[:-1], 4))
    sums[..., 0], sums[..., 3] = cells[..., 0], cells[..., 1]
    with np.errstate(invalid="ignore", divide="ignore"):
        alone = np.where(sums[..., 0] > 0.0, sums[..., 3] / sums[..., 0], np.nan)[:, :, :, 0]
    half = len(alone) // 2
    worth = np.ones_like(alone)
    if compared:
        limits = _limits(np.nanmean(alone[:half], axis=(0, 1, 2)))
        _beside(worth, sums, np.zeros(worth.shape[2], dtype=np.int64), math.exp(-2.0 / MEMORY_S), limits)
    # One clock of all replicas for kernels: each tick with a scrape is a unit.
    by_stream = (lambda units: [[fleet.ravel()] for fleet in units]) if not compared else _by_replica
    return [
        (_heard(by_stream(alone[..., kind])), _heard(by_stream(alone[..., kind] * worth[..., kind])))
        for kind in range(len(KINDS))
    ]


def _by_replica(units: Floats) -> list[list[Floats]]:
    return [list(fleet.T) for fleet in units]


def _heard(fleets: list[list[Floats]]) -> list[list[Floats]]:
    return [[one[np.isfinite(one)] for one in fleet] for fleet in fleets]


def _limits(means: Floats) -> _Limits:
    count = len(KINDS)
    return _Limits(
        source=np.full(count, int(Source.LATENCY)), kind=np.full(count, int(Kind.BETTING)),
        is_rate=np.ones(count, dtype=np.bool_), applies=np.ones((count, 1), dtype=np.bool_),
        mirrored=np.zeros(count, dtype=np.bool_), upper=np.ones(count), clip=np.full(count, np.inf),
        null_mean=means,
    )  # fmt: skip


@njit(cache=True, error_model="numpy")
def _beside(worth, sums, owner, kept, limits):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Into ``worth`` [B, T, R, kinds]: what the scrapes ``sums`` [B, T, R, 1, kinds, 4] count."""
    fleets, ticks, replicas, _, kinds, _ = sums.shape
    whole = np.ones((replicas, 2, kinds))
    for b in range(fleets):
        latest = np.zeros((replicas, 1, kinds, 4))
        for t in range(ticks):
            news = sums[b, t, :, :, -1, 0] > 0.0
            whole[:] = 1.0
            weigh_by_siblings(whole, sums[b, t], news, latest, owner, limits)
            worth[b, t] = whole[:, 0]
            for r in range(replicas):
                note_scrapes(latest[r], sums[b, t, r], news[r], kept)


def calibrated(alone: list[list[Floats]], units: list[list[Floats]], runs: int = RUNS) -> dict[str, Any]:
    """Points of one kind of stream from the first half of the fleets, checked on the second."""
    half = len(units) // 2
    lone = np.concatenate([one for fleet in alone[:half] for one in fleet])
    learned = np.concatenate([one for fleet in units[:half] for one in fleet])
    detector = exceedances(float(lone.mean()))
    found = [
        (arl0, block_threshold(detector, learned, arl0, length=BLOCK, seed=SEED, runs=runs))
        for arl0 in POINTS
    ]
    follows = np.mean([np.corrcoef(one[:-1], one[1:])[0, 1] for fleet in alone[half:] for one in fleet])
    checks = []
    for arl0 in CHECKED:
        level = float(np.interp(np.log(arl0), np.log(POINTS), [one.threshold for _, one in found]))
        checks.append({
            "arl0": arl0,
            "independent": _measured(detector, float(np.log(arl0)), alone[half:]),
            "factor_14": _measured(detector, float(np.log(OLD_FACTOR * arl0)), alone[half:]),
            "calibrated": _measured(detector, level, units[half:]),
        })  # fmt: skip
    return {
        "mean": round(float(lone.mean()), 6), "correlation": round(float(follows), 3),
        "points": [{"arl0": arl0, "threshold": round(one.threshold, 4)} for arl0, one in found],
        "checks": checks,
    }  # fmt: skip


def _measured(detector: Any, level: float, fleets: list[list[Floats]]) -> dict[str, float]:
    """Mean run length on other fleets, in scrapes, with limits bootstrapped over fleets."""
    runs = alarms_of(detector, level, fleets)
    low, high = fleet_limits(runs)
    arl0 = float(runs[:, 1].sum() / max(int(runs[:, 0].sum()), 1))
    return {"arl0": round(arl0, 1), "low": round(low, 1), "high": round(high, 1)}


def table(fleets: int = FLEETS, runs: int = RUNS) -> dict[str, Any]:
    """The whole table, as it is shipped; ``runs``: simulated streams per threshold."""
    seen = record(fleets)
    streams = [
        {"kind": kind, "unit": unit, **calibrated(*series, runs=runs)}
        for unit in LAWS
        for kind, series in zip(KINDS, series_of(seen, unit), strict=True)
    ]
    return {
        "provenance": {
            "command": "python -m scripts.detect_calibrate", "seed": SEED, "fleets": fleets, "block": BLOCK,
            "runs": runs, "rate_rps": RATE_RPS, "horizon_s": HORIZON_S,
            "scenario_sha256": seen.scenario_sha256, "profile_sha256": list(seen.profile_sha256),
            "null": "healthy telemetry whose share over the edge is the limit in the mean, of replicas "
            "beside their siblings",
        },
        "streams": streams,
    }  # fmt: skip


def markdown(found: dict[str, Any]) -> str:
    """The table as a page shows it: thresholds, and ARL0 on fleets that were not calibrated on."""
    lines = [
        "| stream | correlation | threshold at ARL0 1,000 | at 20,000 | at 10⁹, by the line "
        "| ARL0 of nominal 2,000: alone, as if independent "
        "| alone, times 14 | calibrated (95 % limits) |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    known = {(one.kind, one.unit): one for one in parse_traffic(json.dumps(found), "table").streams}
    for row in found["streams"]:
        level = known[row["kind"], row["unit"]].level(np.array([1e3, 2e4, 1e9]))
        check = next(one for one in row["checks"] if one["arl0"] == CHECKED[-1])
        one = check["calibrated"]
        lines.append(
            f"| {row['kind']}, {row['unit']} | {row['correlation']:.2f} "
            f"| {level[0]:.1f} | {level[1]:.1f} | {level[2]:.1f} "
            f"| {check['independent']['arl0']:.0f} | {check['factor_14']['arl0']:.0f} "
            f"| {one['arl0']:.0f} ({one['low']:.0f} to {one['high']:.0f}) |"
        )
    return "\n".join(lines) + "\n"


def follow(known: TrafficCalibration, replicas: int, fleets: int) -> str:
    """Rows of a table: ARL0 of the thresholds of replicas on fleets that nothing was learned of."""
    mine = [one for one in known.streams if one.unit != "kernel"]
    count: list[list[NDArray[np.int64]]] = [[] for _ in mine]
    for first in range(0, fleets, 4 * BATCH):
        seen = record(min(4 * BATCH, fleets - first), seed=FOLLOW_SEED + first, replicas=replicas)
        found = {unit: series_of(seen, unit) for unit in {one.unit for one in mine}}
        for one, counted in zip(mine, count, strict=True):
            alone, units = found[one.unit][KINDS.index(one.kind)]
            detector = exceedances(float(np.mean(np.concatenate([x for fleet in alone for x in fleet]))))
            runs = [alarms_of(detector, float(level), units) for level in one.level(np.array(FOLLOWED))]
            counted.append(np.stack(runs))
    return "".join(
        f"| {one.kind}, {one.unit}, {replicas} replicas | "
        + " | ".join(_limits_of(runs) for runs in np.concatenate(counted, axis=1))
        + " |\n"
        for one, counted in zip(mine, count, strict=True)
    )


def _limits_of(runs: NDArray[np.int64]) -> str:
    """Mean run length of (alarms, units) int64 [fleets, 2], with 95 % limits."""
    low, high = fleet_limits(runs)
    return f"{runs[:, 1].sum() / max(int(runs[:, 0].sum()), 1):.0f} ({low:.0f} to {high:.0f})"


def main(out: Path) -> None:
    """Write the table to ``out``; to ``follow``: print how the one that ships fares on other fleets."""
    if out == Path("follow"):
        file = resolve_uri(SHIPPED, "selvage")
        for replicas, fleets in FOLLOW_FLEETS.items():
            sys.stdout.write(follow(parse_traffic(file.read_text(), str(file)), replicas, fleets))
        return
    text = json.dumps(table(), indent=2, sort_keys=True) + "\n"
    parse_traffic(text, str(out))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, text)
    sys.stderr.write(f"wrote {out}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else resolve_uri(SHIPPED, "selvage"))
