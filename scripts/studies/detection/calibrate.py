"""Calibrate traffic thresholds on simulated telemetry: ``python -m scripts.studies.detection.calibrate``.

Observations come from ``recorded_fleets``. The null is their law at its mean: the least favourable one
that is still healthy. A threshold is the lowest whose mean run length, by the lower 95 % limit over
fleets, is ``BLOCK_MARGIN`` times its ARL0; alarms are counted on as many other fleets: of scrapes alone, as
as if independent, with the stated factor, and calibrated.

Healthy requests never fail, so clauses on failures, fingerprints and trace fields have no law to record.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.loading.files import json_text
from contracts.loading.uris import resolve_uri
from contracts.telemetry import LATENCY_FAMILIES
from controller.detect.calibration.calibrate import BLOCK_MARGIN
from controller.detect.streams.eprocess import Betting, exceedances
from controller.detect.streams.protocol import Floats
from controller.detect.traffic import KINDS, SHIPPED, UNITS, TrafficCalibration, parse_traffic
from scripts.output import write_whole
from scripts.studies.detection.recorded_fleets import BATCH, LOAD_RPS, record, series_of
from scripts.studies.detection.telemetry import BLOCK, HORIZON_S, alarms_of, fleet_limits, run_length

#: First seeds of the fleets for learning and for checking; how many of each, by replicas.
SEED, CHECK_SEED = 11, 10_011
FLEETS = {1: 960, 2: 1200, 3: 480, 4: 600, 8: 192, 16: 72}
#: For latencies of kernels alone. A kernel of one replica has the thresholds of that replica.
KERNEL_FLEETS = {2: 160, 4: 160}
#: Declared ARL0 of the calibrated points, in observations, and those that are checked.
POINTS = np.array([100.0, 300.0, 1000.0, 3000.0, 20_000.0, 100_000.0])
CHECKED = np.array([500.0, 2000.0, 20_000.0, 100_000.0])
#: Fleets on which the line beyond the points is checked, by replicas, and at which declared ARL0.
FAR_SEED, FAR_FLEETS, FAR = 100_011, {2: 4800, 4: 2400}, 1e6
#: Candidate thresholds, in nats.
LEVELS = np.geomspace(1.0, 500.0, 110)
COMMAND = "python -m scripts.studies.detection.calibrate"
#: Factor on thresholds before there was a table.
OLD_FACTOR = 14.0


def calibrated(
    learned: list[list[Floats]], alone: list[list[Floats]], observations: list[list[Floats]], mean: float
) -> dict[str, Any]:
    """Points of a kind of stream with mean ``mean`` from ``learned``; the others check them."""
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
        "calibrated": _measured(detector, np.interp(np.log(CHECKED), np.log(POINTS), points), observations),
    }
    return {
        "mean": round(mean, 6),
        "correlation": round(float(follows), 3),
        "points": [
            {"arl0": arl0, "threshold": round(level, 4)}
            for arl0, level in zip(POINTS.tolist(), points.tolist(), strict=True)
        ],
        "checks": [
            {"arl0": arl0, **{name: one[place] for name, one in measured.items()}}
            for place, arl0 in enumerate(CHECKED.tolist())
        ],
    }


def _measured(detector: Betting, levels: Floats, fleets: list[list[Floats]]) -> list[dict[str, float]]:
    """Mean run length on other fleets at each level, with limits bootstrapped over fleets."""
    runs = alarms_of(detector, levels, fleets)
    return [
        {"alarms": int(alarms), "arl0": round(arl0, 1), "low": round(low, 1), "high": round(high, 1)}
        for alarms, arl0, low, high in zip(
            runs[..., 0].sum(axis=1).tolist(),
            run_length(runs).tolist(),
            *(x.tolist() for x in fleet_limits(runs)),
            strict=True,
        )
    ]


def table(fleets: Mapping[int, int] = FLEETS, units: Sequence[str] = UNITS) -> dict[str, Any]:
    """The whole table, or the streams of some ``units``; ``fleets``: by replicas."""
    streams, hashes = [], {}
    for replicas, count in fleets.items():
        learned = record(count, replicas, seed=SEED)
        hashes[str(replicas)] = learned.scenario_sha256
        other = record(count, replicas, seed=CHECK_SEED, kv_edge=learned.kv_edge)
        for unit in units if replicas > 1 else ("kernel",):
            mine = series_of(learned, unit)
            checked = series_of(other, unit, mine.means)
            streams += [
                {"kind": kind, "unit": unit, "replicas": replicas, **calibrated(*rest)}
                for kind, *rest in zip(
                    KINDS,
                    mine.observations,
                    checked.alone,
                    checked.observations,
                    mine.means.tolist(),
                    strict=True,
                )
            ]
    return {
        "provenance": {
            "command": COMMAND,
            "seed": SEED,
            "check_seed": CHECK_SEED,
            "fleets": {str(replicas): count for replicas, count in fleets.items()},
            "rest": BLOCK,
            "rate_rps": {str(replicas): LOAD_RPS[replicas] for replicas in fleets},
            "horizon_s": HORIZON_S,
            "scenario_sha256": hashes,
            "profile_sha256": list(learned.profile_sha256),
            "null": "healthy telemetry whose share over the edge is the limit in the mean, of replicas "
            "beside their peers",
        },
        "streams": streams,
    }


def with_kernels(known: dict[str, Any], fleets: Mapping[int, int] = KERNEL_FLEETS) -> dict[str, Any]:
    """``known`` with new latencies of kernels, as the gateway counts them; others of kernels are removed.

    Everything else is unchanged: replicas, KV use, and kernels of one replica.
    """
    found = table(fleets, ("kernel",))
    fresh = [row for row in found["streams"] if row["kind"] in LATENCY_FAMILIES]
    old = [
        row
        for row in known["streams"]
        if row["unit"] != "kernel" or row["kind"] not in LATENCY_FAMILIES or row["replicas"] == 1
    ]
    kept = known["provenance"].get("kept", known["provenance"])
    provenance = found["provenance"] | {"command": f"{COMMAND} kernels", "kept": kept}
    order = {row: place for place, row in enumerate((unit, count) for count in FLEETS for unit in UNITS)}
    streams = sorted(
        old + fresh, key=lambda row: (order[row["unit"], row["replicas"]], KINDS.index(row["kind"]))
    )
    return {"provenance": provenance, "streams": streams}


def markdown(found: dict[str, Any]) -> str:
    """The table as Markdown: thresholds, and ARL0 on fleets that were not used for calibration."""
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
            + " | ".join(_ratio(check, "calibrated") for check in row["checks"])
            + " |"
        )
    return "\n".join(lines) + "\n"


def _ratio(check: dict[str, Any], name: str) -> str:
    """Measured over nominal ARL0, with the lower limit of what is calibrated."""
    ratio, low = check[name]["arl0"] / check["arl0"], check[name]["low"] / check["arl0"]
    return f"{ratio:.2f} ({low:.2f})" if name == "calibrated" else f"{ratio:.2f}"


def far(known: TrafficCalibration, replicas: int, fleets: int) -> str:
    """Rows of a table: alarms and ARL0 at replicas' thresholds for ``FAR`` scrapes, from the line."""
    mine = [one for one in known.streams if one.replicas == replicas and one.unit != "kernel"]
    counted: list[list[NDArray[np.int64]]] = [[] for _ in mine]
    for first in range(0, fleets, 20 * BATCH):
        seen = record(min(20 * BATCH, fleets - first), replicas, seed=FAR_SEED + first)
        found = {unit: series_of(seen, unit) for unit in {one.unit for one in mine}}
        for one, runs in zip(mine, counted, strict=True):
            series, kind = found[one.unit], KINDS.index(one.kind)
            detector = exceedances(float(series.means[kind]))
            runs.append(alarms_of(detector, one.level(np.array([FAR])), series.observations[kind])[0])
    return "".join(
        f"| {one.kind}, {one.unit}, {replicas} | {runs[:, 0].sum()} | {run_length(runs) / FAR:.2f} "
        f"({fleet_limits(runs)[0] / FAR:.2f}) |\n"
        for one, runs in zip(mine, map(np.concatenate, counted), strict=True)
    )


def main(out: Path) -> None:
    """Write the table to ``out``; ``far``: print how the shipped one performs beyond its points.

    ``kernels``: write the shipped one with new streams of kernels.
    """
    file = resolve_uri(SHIPPED, "selvage")
    if out == Path("far"):
        for replicas, fleets in FAR_FLEETS.items():
            sys.stdout.write(far(parse_traffic(file.read_text(), str(file)), replicas, fleets))
        return
    anew = out == Path("kernels")
    out = file if anew else out
    found = with_kernels(json.loads(file.read_text())) if anew else table()
    text = f"{json_text(found, indent=2)}\n"
    parse_traffic(text, str(out))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, text)
    sys.stderr.write(f"wrote {out}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else resolve_uri(SHIPPED, "selvage"))
