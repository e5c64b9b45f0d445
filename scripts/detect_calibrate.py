"""Calibrate the thresholds of traffic clauses on simulated telemetry: ``python -m scripts.detect_calibrate``.

Fault-free fleets of one to sixteen measured replicas run at a load where queues form, with sessions that
stick and three slices, one of which has few requests. A unit is the share of a scrape's requests over the
histogram edge that comes nearest to a clause's 5 %, or KV use over its own 95 % point; of replicas, weighed
by their siblings' last scrapes as the sequential detector does. The null is that law at its mean: the least
favourable one that is still healthy. A threshold is the lowest whose mean run length, by the lower 95 %
limit over fleets, is ``BLOCK_MARGIN`` times its ARL0; alarms are counted on as many other fleets: units
alone, as if independent and with the stated factor, and calibrated.

Nothing healthy ever fails, so clauses on failures, fingerprints and trace fields have no law to record.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from contracts.compiled import Source
from contracts.detect.calibrate import BLOCK_MARGIN
from contracts.detect.clauses import Kind
from contracts.detect.eprocess import Betting, exceedances
from contracts.detect.protocol import Floats
from contracts.detect.traffic import KINDS, SHIPPED, UNITS, TrafficCalibration, parse_traffic
from contracts.layout import HISTOGRAM_EDGES_MS
from contracts.telemetry import FleetTelemetry
from contracts.uris import resolve_uri
from controller.siblings_compiled import note_scrapes, weigh_by_siblings
from scripts.detect_telemetry import (
    BLOCK,
    HORIZON_S,
    ScrapeWatcher,
    alarms_of,
    fleet_limits,
    queues,
    run_length,
)
from scripts.output import write_whole
from simulator.fleet import run_episodes

#: Fleets to learn from and their load in requests/s, by replicas; as many are checked on.
SEED, CHECK_SEED, BATCH = 11, 10_011, 24
FLEETS = {1: 960, 2: 1200, 3: 480, 4: 600, 8: 192, 16: 72}
LOAD_RPS = {1: 10.0, 2: 21.0, 3: 31.5, 4: 42.0, 8: 86.0, 16: 173.0}
#: Declared ARL0 of the calibrated points, in scrapes, and those that are checked.
POINTS = np.array([100.0, 300.0, 1000.0, 3000.0, 20_000.0, 100_000.0])
CHECKED = np.array([500.0, 2000.0, 20_000.0, 100_000.0])
#: Fleets on which the line beyond the points is checked, by replicas, and at which declared ARL0.
FAR_SEED, FAR_FLEETS, FAR = 100_011, {2: 4800, 4: 2400}, 1e6
#: Thresholds that are tried, in nats.
LEVELS = np.geomspace(1.0, 500.0, 110)
#: Edges that about 5 % of the requests are over at this load, in ms, and the share of scrapes that are over
#: the edge of KV use.
EDGES_MS, RATE = (8000.0, 80.0, 20.0), 0.05
#: What thresholds were raised by before there was a table.
OLD_FACTOR = 14.0
#: Places in the contract of the slices that the recorded fleet serves: with 32 requests a scrape, 16 and 5.
SLICES = [0, 2, 4]
BUSY, MIDDLE, THIN = 0, 1, 2
#: Memory of the siblings' last scrapes, in s: half the window of the shipped contract.
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
    """Healthy telemetry: seen float32 [B, T, R, S, kinds, 2], requests and those over, 0 without a scrape.

    kv_edge: KV use that ``RATE`` of the scrapes are over, if this is what is learned from.
    """

    seen: NDArray[np.float32]
    kv_edge: float
    scenario_sha256: str
    profile_sha256: tuple[str, ...]


class Series(NamedTuple):
    """Of each kind: its mean, and units alone and beside siblings, by fleet and series, scrape by scrape."""

    means: Floats
    alone: list[list[list[Floats]]]
    units: list[list[list[Floats]]]


def record(fleets: int, replicas: int, *, seed: int = SEED, kv_edge: float | None = None) -> Recorded:
    """Run ``fleets`` fleets without a fault, from ``seed`` on; ``kv_edge``: of those learned from."""
    scenario, sha256 = queues(mixed=True, replicas=replicas, rate_rps=LOAD_RPS[replicas])
    seen = np.empty(0, dtype=np.float32)
    for first in range(0, fleets, BATCH):
        watcher, seeds = _SliceWatcher(scenario, replicas=replicas), range(fleets)[first : first + BATCH]
        run_episodes(scenario, watcher, range(seed + seeds[0], seed + seeds[-1] + 1), batch=BATCH)
        part = np.stack(watcher.seen, axis=1)
        seen = seen if seen.size else np.empty((fleets, *part.shape[1:]), dtype=np.float32)
        seen[seeds[0] : seeds[-1] + 1] = part
    used = seen[..., -1, 1]
    edge = float(np.quantile(used[seen[..., -1, 0] > 0.0], 1.0 - RATE)) if kv_edge is None else kv_edge
    used[:] = used > edge
    return Recorded(
        seen=seen, kv_edge=edge, scenario_sha256=sha256, profile_sha256=scenario.profile_sha256
    )  # fmt: skip


def series_of(seen: Recorded, unit: str, means: Floats | None = None) -> Series:
    """Units of ``unit``; ``means`` [kinds]: of what was learned from, else its own."""
    place, compared = LAWS[unit]
    cells = seen.seen[:, :, :, place]
    if not compared:  # a kernel has one unit per tick, of all replicas that were scraped in it
        cells = cells.sum(axis=2, keepdims=True)
    if means is None:
        total = [_shares(part).reshape(-1, len(KINDS)) for part in _batches(cells)]
        heard = sum(np.isfinite(part).sum(axis=0) for part in total)
        means = np.asarray(sum(np.nansum(part, axis=0) for part in total) / np.maximum(heard, 1))
    found = Series(means, [[] for _ in KINDS], [[] for _ in KINDS])
    for part in _batches(cells):
        alone = _shares(part)
        worth = _worth(part, means) if compared else np.ones_like(alone)
        for kind in range(len(KINDS)):
            for series, values in (
                (found.alone, alone[..., kind]),
                (found.units, (alone * worth)[..., kind]),
            ):
                series[kind].extend([[one[np.isfinite(one)] for one in fleet.T] for fleet in values])
    return found


def _batches(cells: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    return [cells[first : first + BATCH] for first in range(0, len(cells), BATCH)]


def _shares(cells: NDArray[np.float32]) -> Floats:
    """Share over the edge [B, T, R, kinds] of ``cells`` [B, T, R, kinds, 2]; NaN without requests."""
    wide = cells.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(wide[..., 0] > 0.0, wide[..., 1] / wide[..., 0], np.nan))


def _worth(cells: NDArray[np.float32], means: Floats) -> Floats:
    """What each scrape counts beside its siblings' last ones, [B, T, R, kinds]."""
    sums = np.zeros((*cells.shape[:3], 1, len(KINDS), 4))
    sums[..., 0, :, 0], sums[..., 0, :, 3] = cells[..., 0], cells[..., 1]
    worth = np.ones((*cells.shape[:3], len(KINDS)))
    _beside(worth, sums, np.zeros(worth.shape[2], dtype=np.int64), math.exp(-1.0 / MEMORY_S), _limits(means))
    return worth


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


def calibrated(
    learned: list[list[Floats]], alone: list[list[Floats]], units: list[list[Floats]], mean: float
) -> dict[str, Any]:
    """Points of a kind of stream with mean ``mean`` from ``learned``; checked on ``alone``, ``units``."""
    detector = exceedances(mean)
    reached = np.maximum.accumulate(fleet_limits(alarms_of(detector, LEVELS, learned))[0]) / BLOCK_MARGIN
    if reached[-1] < POINTS[-1]:
        raise ValueError(f"expected an ARL0 of {POINTS[-1]:g} within what was recorded, got {reached[-1]:g}")
    points = np.interp(np.log(POINTS), np.log(reached), LEVELS)
    varied = [one for fleet in alone for one in fleet if one[:-1].std() * one[1:].std() > 0.0]
    follows = np.mean([np.corrcoef(one[:-1], one[1:])[0, 1] for one in varied])
    measured = {
        "independent": _measured(detector, np.log(CHECKED), alone),
        "factor_14": _measured(detector, np.log(OLD_FACTOR * CHECKED), alone),
        "calibrated": _measured(detector, np.interp(np.log(CHECKED), np.log(POINTS), points), units),
    }
    return {
        "mean": round(mean, 6), "correlation": round(float(follows), 3),
        "points": [
            {"arl0": arl0, "threshold": round(level, 4)}
            for arl0, level in zip(POINTS.tolist(), points.tolist(), strict=True)
        ],
        "checks": [
            {"arl0": arl0, **{name: one[place] for name, one in measured.items()}}
            for place, arl0 in enumerate(CHECKED.tolist())
        ],
    }  # fmt: skip


def _measured(detector: Betting, levels: Floats, fleets: list[list[Floats]]) -> list[dict[str, float]]:
    """Mean run length on other fleets at each level, in scrapes, with limits bootstrapped over fleets."""
    runs = alarms_of(detector, levels, fleets)
    return [
        {"alarms": int(alarms), "arl0": round(arl0, 1), "low": round(low, 1), "high": round(high, 1)}
        for alarms, arl0, low, high in zip(
            runs[..., 0].sum(axis=1).tolist(), run_length(runs).tolist(),
            *(x.tolist() for x in fleet_limits(runs)), strict=True,
        )
    ]  # fmt: skip


def table(fleets: Mapping[int, int] = FLEETS) -> dict[str, Any]:
    """The whole table, as it is shipped; ``fleets``: by replicas."""
    streams, hashes = [], {}
    for replicas, count in fleets.items():
        learned = record(count, replicas)
        hashes[str(replicas)] = learned.scenario_sha256
        other = record(count, replicas, seed=CHECK_SEED, kv_edge=learned.kv_edge)
        for unit in UNITS if replicas > 1 else ("kernel",):
            mine = series_of(learned, unit)
            checked = series_of(other, unit, mine.means)
            streams += [
                {"kind": kind, "unit": unit, "replicas": replicas, **calibrated(*rest)}
                for kind, *rest in zip(
                    KINDS, mine.units, checked.alone, checked.units, mine.means.tolist(), strict=True
                )
            ]
    return {
        "provenance": {
            "command": "python -m scripts.detect_calibrate", "seed": SEED, "check_seed": CHECK_SEED,
            "fleets": {str(replicas): count for replicas, count in fleets.items()}, "rest": BLOCK,
            "rate_rps": {str(replicas): LOAD_RPS[replicas] for replicas in fleets}, "horizon_s": HORIZON_S,
            "scenario_sha256": hashes, "profile_sha256": list(learned.profile_sha256),
            "null": "healthy telemetry whose share over the edge is the limit in the mean, of replicas "
            "beside their siblings",
        },
        "streams": streams,
    }  # fmt: skip


def markdown(found: dict[str, Any]) -> str:
    """The table as a page shows it: thresholds, and ARL0 on fleets that were not calibrated on."""
    lines = [
        "| stream, replicas | correlation | threshold at ARL0 20,000 | at 10⁹, by the line "
        "| of 2,000 alone, as if independent | alone, times 14 "
        "| " + " | ".join(f"of {arl0:,.0f}" for arl0 in CHECKED) + " |",
        "| --- " * (6 + CHECKED.size) + "|",
    ]
    known = parse_traffic(json.dumps(found), "table").streams
    for row, stream in zip(found["streams"], known, strict=True):
        level, short = stream.level(np.array([2e4, 1e9])), row["checks"][1]
        lines.append(
            f"| {row['kind']}, {row['unit']}, {row['replicas']} | {row['correlation']:.2f} | {level[0]:.1f} "
            f"| {level[1]:.1f} | {_ratio(short, 'independent')} | {_ratio(short, 'factor_14')} | "
            + " | ".join(_ratio(check, "calibrated") for check in row["checks"]) + " |"
        )  # fmt: skip
    return "\n".join(lines) + "\n"


def _ratio(check: dict[str, Any], name: str) -> str:
    """Measured over nominal ARL0, with the lower limit of what is calibrated."""
    ratio, low = check[name]["arl0"] / check["arl0"], check[name]["low"] / check["arl0"]
    return f"{ratio:.2f} ({low:.2f})" if name == "calibrated" else f"{ratio:.2f}"


def far(known: TrafficCalibration, replicas: int, fleets: int) -> str:
    """Rows of a table: alarms and ARL0 of replicas' thresholds of ``FAR`` scrapes, which the line gives."""
    mine = [one for one in known.streams if one.replicas == replicas and one.unit != "kernel"]
    counted: list[list[NDArray[np.int64]]] = [[] for _ in mine]
    for first in range(0, fleets, 20 * BATCH):
        seen = record(min(20 * BATCH, fleets - first), replicas, seed=FAR_SEED + first)
        found = {unit: series_of(seen, unit) for unit in {one.unit for one in mine}}
        for one, runs in zip(mine, counted, strict=True):
            series, kind = found[one.unit], KINDS.index(one.kind)
            detector = exceedances(float(series.means[kind]))
            runs.append(alarms_of(detector, one.level(np.array([FAR])), series.units[kind])[0])
    return "".join(
        f"| {one.kind}, {one.unit}, {replicas} | {runs[:, 0].sum()} | {run_length(runs) / FAR:.2f} "
        f"({fleet_limits(runs)[0] / FAR:.2f}) |\n"
        for one, runs in zip(mine, map(np.concatenate, counted), strict=True)
    )


def main(out: Path) -> None:
    """Write the table to ``out``; to ``far``: print how the one that ships fares beyond its points."""
    if out == Path("far"):
        file = resolve_uri(SHIPPED, "selvage")
        for replicas, fleets in FAR_FLEETS.items():
            sys.stdout.write(far(parse_traffic(file.read_text(), str(file)), replicas, fleets))
        return
    text = json.dumps(table(), indent=2, sort_keys=True) + "\n"
    parse_traffic(text, str(out))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, text)
    sys.stderr.write(f"wrote {out}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else resolve_uri(SHIPPED, "selvage"))
