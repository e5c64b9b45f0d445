"""Calibrate the thresholds of traffic clauses on simulated telemetry: ``python -m scripts.detect_calibrate``.

Fault-free fleets of four measured replicas run at a load where queues form. One series per replica, and one
pooled over the four: the share of a scrape's requests over the histogram edge that comes nearest to a
clause's 5 %, for every latency family; and KV use over its own 95 % point. The null is that law at its mean:
the least favourable one that is still healthy. Thresholds are found on blocks of the first half of the
fleets, and alarms are counted on the second half: as if independent, with the stated factor, and calibrated.

Nothing healthy ever fails, so clauses on failures, fingerprints and trace fields have no law to record.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.detect.calibrate import block_threshold
from contracts.detect.eprocess import exceedances
from contracts.detect.protocol import Floats
from contracts.detect.traffic import SHIPPED, parse_traffic
from contracts.layout import LATENCY_FAMILIES
from contracts.uris import resolve_uri
from scripts.detect_telemetry import (
    BLOCK,
    HORIZON_S,
    RATE_RPS,
    ScrapeWatcher,
    count_alarms,
    fleet_limits,
    queues,
)
from scripts.output import write_whole
from simulator.fleet import run_episodes

SEED, FLEETS, RUNS = 11, 96, 2000
#: Declared ARL0 of the calibrated points, in scrapes, and those that are checked on other fleets.
POINTS, CHECKED = (100.0, 300.0, 1000.0, 3000.0, 10_000.0), (500.0, 2000.0)
#: Share of a clause's requests over its objective that the edges are chosen for.
RATE = 0.05
#: What thresholds were raised by before there was a table.
OLD_FACTOR = 14.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Healthy telemetry: counts float64 [B, R, T, F, E + 1], used [B, R, T], NaN where no scrape came."""

    counts: Floats
    used: Floats
    scenario_sha256: str
    profile_sha256: tuple[str, ...]


def record(fleets: int) -> Recorded:
    """Run ``fleets`` fleets without a fault."""
    scenario, sha256 = queues()
    watcher = ScrapeWatcher(scenario, families=tuple(range(len(LATENCY_FAMILIES))))
    run_episodes(scenario, watcher, range(SEED, SEED + fleets), batch=fleets)
    return Recorded(
        counts=np.stack(watcher.counts, axis=2).astype(np.float64), used=np.stack(watcher.used, axis=2),
        scenario_sha256=sha256, profile_sha256=scenario.profile_sha256,
    )  # fmt: skip


def series_of(seen: Recorded, kind: str, *, pooled: bool) -> list[list[Floats]]:
    """Units of one kind by fleet and, of replicas, by replica: shares or indicators, scrape by scrape."""
    if kind == "kv_used_ratio":
        most = float(np.nanquantile(seen.used, 1.0 - RATE))
        full = np.where(np.isfinite(seen.used), (seen.used > most).astype(np.float64), np.nan)
        units = np.nanmean(_together(full), axis=1)[:, None] if pooled else full
    else:
        counts = seen.counts[..., LATENCY_FAMILIES.index(kind), :]
        counts = np.nansum(_together(counts), axis=1)[:, None] if pooled else counts
        total = np.nansum(counts, axis=(0, 1, 2))
        over = np.maximum(1.0 - total / total[-1], 1e-12)
        edge = int(np.argmin(np.abs(np.log(over[:-1] / RATE))))
        with np.errstate(invalid="ignore", divide="ignore"):
            units = 1.0 - counts[..., edge] / counts[..., -1]
    return [[replica[np.isfinite(replica)] for replica in fleet] for fleet in units]


def _together(values: Floats) -> Floats:
    """Scrapes of the replicas [B, R, T, ...] in one round beside each other, [B, R, rounds, ...].

    Replicas are scraped once per round, each at its own tick.
    """
    rounds = int(np.isfinite(values).reshape(*values.shape[:3], -1).any(axis=3).sum(axis=2).min())
    picked = np.full((*values.shape[:2], rounds, *values.shape[3:]), np.nan)
    for b, r in np.ndindex(*values.shape[:2]):
        here = np.isfinite(values[b, r]).reshape(values.shape[2], -1).any(axis=1)
        picked[b, r] = values[b, r][here][:rounds]
    return picked


def calibrated(series: list[list[Floats]]) -> dict[str, Any]:
    """Points of one kind of stream from the first half of the fleets, checked on the second."""
    half = len(series) // 2
    learned = np.concatenate([one for fleet in series[:half] for one in fleet])
    detector = exceedances(float(learned.mean()))
    found = [
        (arl0, block_threshold(detector, learned, arl0, length=BLOCK, seed=SEED, runs=RUNS))
        for arl0 in POINTS
    ]
    fresh = series[half:]
    follows = np.mean([np.corrcoef(one[:-1], one[1:])[0, 1] for fleet in fresh for one in fleet])
    checks = []
    for arl0 in CHECKED:
        level = float(np.interp(np.log(arl0), np.log(POINTS), [one.threshold for _, one in found]))
        checks.append({
            "arl0": arl0,
            "independent": _measured(detector, float(np.log(arl0)), fresh),
            "factor_14": _measured(detector, float(np.log(OLD_FACTOR * arl0)), fresh),
            "calibrated": _measured(detector, level, fresh),
        })  # fmt: skip
    return {
        "mean": round(float(learned.mean()), 6), "correlation": round(float(follows), 3),
        "points": [{"arl0": arl0, "threshold": round(one.threshold, 4)} for arl0, one in found],
        "checks": checks,
    }  # fmt: skip


def _measured(detector: Any, level: float, fleets: list[list[Floats]]) -> dict[str, float]:
    """Mean run length on other fleets, in scrapes, with limits bootstrapped over fleets."""
    runs = np.array(
        [np.sum([count_alarms(detector, level, one) for one in fleet], axis=0) for fleet in fleets],
        dtype=np.int64,
    )
    low, high = fleet_limits(runs)
    arl0 = float(runs[:, 1].sum() / max(int(runs[:, 0].sum()), 1))
    return {"arl0": round(arl0, 1), "low": round(low, 1), "high": round(high, 1)}


def table(fleets: int = FLEETS) -> dict[str, Any]:
    """The whole table, as it is shipped."""
    seen = record(fleets)
    kinds: NDArray[np.str_] = np.array([*LATENCY_FAMILIES, "kv_used_ratio"])
    streams = [
        {"kind": str(kind), "pooled": pooled, **calibrated(series_of(seen, str(kind), pooled=pooled))}
        for pooled in (False, True)
        for kind in kinds
    ]
    return {
        "provenance": {
            "command": "python -m scripts.detect_calibrate", "seed": SEED, "fleets": fleets, "block": BLOCK,
            "runs": RUNS, "rate_rps": RATE_RPS, "horizon_s": HORIZON_S,
            "scenario_sha256": seen.scenario_sha256, "profile_sha256": list(seen.profile_sha256),
            "null": "healthy telemetry whose share over the edge is the limit in the mean",
        },
        "streams": streams,
    }  # fmt: skip


def markdown(found: dict[str, Any]) -> str:
    """The table as a page shows it: thresholds, and ARL0 on fleets that were not calibrated on."""
    lines = [
        "| stream | correlation | threshold at ARL0 1,000 | at 10,000 "
        "| ARL0 of nominal 2,000: as if independent "
        "| times 14 | calibrated (95 % limits) |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in found["streams"]:
        points = {point["arl0"]: point["threshold"] for point in row["points"]}
        check = next(one for one in row["checks"] if one["arl0"] == CHECKED[-1])
        one = check["calibrated"]
        name = f"{row['kind']}, {'kernel' if row['pooled'] else 'replica'}"
        lines.append(
            f"| {name} | {row['correlation']:.2f} | {points[1000.0]:.1f} | {points[10_000.0]:.1f} "
            f"| {check['independent']['arl0']:.0f} | {check['factor_14']['arl0']:.0f} "
            f"| {one['arl0']:.0f} ({one['low']:.0f} to {one['high']:.0f}) |"
        )
    return "\n".join(lines) + "\n"


def main(out: Path) -> None:
    """Write the table to ``out``."""
    text = json.dumps(table(), indent=2, sort_keys=True) + "\n"
    parse_traffic(text, str(out))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, text)
    sys.stderr.write(f"wrote {out}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else resolve_uri(SHIPPED, "selvage"))
