"""Tables and plots of docs/detection-results.md.

``python -m scripts.studies.detection.report docs [SECTION...]``. Tables stand between marks
(``scripts.output``); the rest of the page stays. Takes a few minutes on one core. Progress on stderr.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

from contracts.documents.profile import HEALTHY
from contracts.loading.uris import resolve_uri
from contracts.rng import stream
from controller.detect.calibration.calibrate import calibrated_threshold
from controller.detect.calibration.laws import Normal, ObservationLaw, Ones
from controller.detect.calibration.simulate import LawChange, delays, reference_arls
from controller.detect.streams.eprocess import Gaussian, exceedances
from controller.detect.streams.protocol import StreamDetector, guaranteed_threshold
from controller.detect.streams.ranks import rank_edges
from controller.detect.traffic import SHIPPED
from scripts.output import fill, table
from scripts.studies.detection.calibrate import markdown
from scripts.studies.detection.cases import SEED, Figures
from scripts.studies.detection.measured import (
    SHARES,
    MeasuredDose,
    dose,
    poisoned_slice,
    probes_per_s,
    shipped,
)
from scripts.studies.detection.plots import operating_curves, save_doses, save_operating
from scripts.studies.detection.replay import replayed_figures
from scripts.studies.detection.river import synthetic_figures
from scripts.studies.detection.speed import accumulate_ms, update_ms, warm
from scripts.studies.detection.telemetry import ARL0, dependence

PAGE = "detection-results.md"
KERNELS = ("bf16", "w8a8")
POISONS = ("requantise-w4", "bit-flips-1-exponent-seed0", "regression-kv-e5m2")


def main() -> None:
    """Compute the named sections, all by default, and write the page."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs")
    sections: dict[str, Callable[[Path], dict[str, list[str]]]] = {
        "operating": _operating,
        "replayed": _replayed,
        "far": _far,
        "references": _references,
        "telemetry": _telemetry,
        "traffic": _traffic,
        "doses": _doses,
        "speed": _speed,
    }
    for name in sys.argv[2:] or sections:
        print(name, file=sys.stderr, flush=True)
        fill(folder / PAGE, sections[name](folder))


def _operating(folder: Path) -> dict[str, list[str]]:
    save_operating(operating_curves(), folder / "detection-operating.svg")
    return {"operating": operating_table(synthetic_figures(), ("N0.5", "N1", "N2", "B0.05", "B0.2"))}


def _replayed(_: Path) -> dict[str, list[str]]:
    rows = replayed_figures()
    return {"replayed": operating_table(rows, tuple(dict.fromkeys(row.stream for row in rows)))}


def _far(_: Path) -> dict[str, list[str]]:
    return {"far": far_table()}


def _telemetry(_: Path) -> dict[str, list[str]]:
    return {"telemetry": telemetry_table()}


def _traffic(_: Path) -> dict[str, list[str]]:
    """From the shipped calibration, which ``scripts.studies.detection.calibrate`` wrote."""
    shipped_table = resolve_uri(SHIPPED, PAGE).read_text(encoding="utf-8")
    return {"traffic": markdown(json.loads(shipped_table)).splitlines()}


def _references(_: Path) -> dict[str, list[str]]:
    return {"references": reference_table()}


def _doses(folder: Path) -> dict[str, list[str]]:
    doses = measured_doses()
    save_doses(_dose_points(doses), folder / "detection-doses.svg")
    return {"doses": dose_table(doses), "poisoned": poisoned_table()}


def _speed(_: Path) -> dict[str, list[str]]:
    warm()
    return {"speed": speed_table()}


def operating_table(rows: list[Figures], streams: tuple[str, ...]) -> list[str]:
    """One line per detector: measured ARL0, then delay and ratio per stream, worst case in brackets."""
    cells: dict[str, dict[str, Figures]] = {}
    for row in rows:
        cells.setdefault(row.detector, {})[row.stream] = row
    lines = []
    for name, own in cells.items():
        arls = sorted({round(row.arl0_measured / 1000.0, 1) for row in own.values()})
        span = f"{arls[0]:g}" if len(arls) == 1 else f"{arls[0]:g} to {arls[-1]:g}"
        lines.append([name, span, *(_cell(own.get(stream)) for stream in streams)])
    return table(["detector", "measured ARL0, thousands", *streams], lines)


def _cell(row: Figures | None) -> str:
    if row is None:
        return ""
    worst = "" if math.isnan(row.delay_worst) else f" [{row.delay_worst:.3g}]"
    return f"{row.delay:.3g} ({row.ratio:.2f}){worst}"


def far_table() -> list[str]:
    """Thresholds of log-evidence and delays at run lengths that no simulation reaches."""
    cases: tuple[tuple[str, StreamDetector, ObservationLaw, ObservationLaw], ...] = (
        ("normal, shift 1", Gaussian(), Normal(), Normal(mean=1.0)),
        ("ones, 0.01 to 0.05", exceedances(0.01), Ones(rate=0.01), Ones(rate=0.05)),
    )
    lines = []
    for name, detector, before, after in cases:
        for arl0 in (1e4, 1e7, 1e9):
            found = calibrated_threshold(detector, before, arl0, seed=SEED)
            levels = (guaranteed_threshold(arl0), found.threshold)
            means = [
                delays(detector, level, LawChange(before, after, 1000), runs=3000, seed=SEED).mean
                for level in levels
            ]
            lines.append(
                [
                    name,
                    f"{arl0:.0e}",
                    *(f"{x:.2f}" for x in levels),
                    *(f"{x:.1f}" for x in means),
                    found.method,
                ]
            )
    head = [
        "stream",
        "ARL0",
        "threshold, guaranteed",
        "calibrated",
        "delay, guaranteed",
        "calibrated",
        "method",
    ]
    return table(head, lines)


def measured_doses() -> list[MeasuredDose]:
    """Every condition of the available kernels that changes numerics, by dose."""
    found: list[MeasuredDose] = []
    for kernel in KERNELS:
        samples = shipped(kernel)
        if samples is None:
            continue
        names = [c for c in samples.condition_names if c != HEALTHY and not c.startswith("slow")]
        found += sorted((dose(kernel, samples, name) for name in names), key=lambda one: one.drift_nats)
    return found


def dose_table(doses: list[MeasuredDose]) -> list[str]:
    """One line per dose."""
    shares = [f"{share:.0%}: {probes_per_s(share):g}/s" for share in SHARES]
    head = ["kernel, fault", "mean KL, nats", "worst slice", "breaks contract", "probes, median (90 %)"]
    head += [f"s at {share}" for share in shares]
    head += [f"whole kernel, s at {shares[-1]}", "certified baseline, probes", "5 % noise"]
    return table(head, (_dose_line(one) for one in doses))


def _dose_line(one: MeasuredDose) -> list[str]:
    return [
        f"{one.kernel}, {one.condition}",
        f"{one.drift_nats:.1e}",
        f"{one.worst_slice_nats:.1e}",
        "yes" if one.breaks else "no",
        f"{_count(one.probes_median)} ({_count(one.probes_90)})",
        *(_count(value) for value in one.seconds),
        _count(one.kernel_seconds[-1]),
        _count(one.drift),
        _count(one.drift_noisy),
    ]


def _count(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "none"


def poisoned_table() -> list[str]:
    """One slice of one replica has a fault: when it is found, and what means show."""
    samples = shipped("bf16")
    found = [poisoned_slice(samples, name, "numbers") for name in POISONS] if samples else []
    head = [
        "fault on numbers only",
        "alarm after, s",
        "probes",
        "flips on the slice, points",
        "fleet mean, points",
    ]
    return table(
        head,
        (
            [
                one.condition,
                _count(one.seconds),
                _count(one.probes_median),
                f"+{one.slice_points:.1f}",
                f"+{one.fleet_points:.2f}",
            ]
            for one in found
        ),
    )


def reference_table() -> list[str]:
    """Fixed references of several sizes: ARL0 conditional on the reference, at the threshold log 10,000."""
    rng, lines = stream(SEED, "bank_table"), []
    for size in (100, 300, 1000):
        references = rng.normal(size=(40, size))
        edges, level = rank_edges(rng.normal(size=size)), guaranteed_threshold(1e4)
        found = reference_arls(edges, references, Normal(), level, streams=50, samples=20_000, seed=SEED)
        values = (found.median, found.low, found.harmonic_mean)
        lines.append([str(size), *(f"{value:.0f}" for value in values)])
    return table(
        ["observations in the sample", "ARL0, median sample", "5 % quantile", "harmonic mean"], lines
    )


def telemetry_table() -> list[str]:
    """Simulated telemetry: measured ARL0 of thresholds calibrated as if independent, and on blocks."""
    head = ["stream", "correlation of successive scrapes", "as if independent", "on blocks", "95 % limits"]
    return table(
        [*head[:2], f"ARL0 of nominal {ARL0:g}, {head[2]}", *head[3:]],
        (
            [
                one.stream,
                f"{one.correlation:.2f}",
                f"{one.independent_arl:.0f}",
                f"{one.block_arl:.0f}",
                f"{one.block_low:.0f} to {one.block_high:.0f}",
            ]
            for one in dependence()
        ),
    )


def speed_table() -> list[str]:
    """CPU time of an update."""
    lines = [[f"10,000 streams, {name}", f"{spent:.2f}"] for name, spent in update_ms().items()]
    lines.append(["evidence of 12 probes of one fleet, every probe clause", f"{accumulate_ms():.4f}"])
    return table(["update", "CPU ms"], lines)


def _dose_points(doses: list[MeasuredDose]) -> list[tuple[str, float, float]]:
    return [
        (f"{share:.0%} probe tokens", one.drift_nats, one.seconds[place])
        for one in doses
        for place, share in enumerate(SHARES)
        if math.isfinite(one.seconds[place])
    ]


if __name__ == "__main__":
    main()
