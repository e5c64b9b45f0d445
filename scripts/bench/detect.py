"""Benchmark of the detectors: ``selvage bench detect``.

Keys are ``<detector>/<stream>/<figure>``: N0.5, N1, N2 are normal units whose mean moves by so many standard
deviations, B0.05 and B0.2 are 0/1 units whose rate moves there from 0.01. Delays count units after a change
at 1,000; ``delay_ratio_to_known_cusum`` is against CUSUM with both laws known, at the same measured ARL0.
Streams named like a profile's condition replay measured drifts (slice numbers); there the yardstick is
CUSUM on a declared binning. ``missed_rate``, ``false_alarm_rate`` and ``mean_time_ratio`` (time between
false alarms over delay, times the share found) are the words of river and Bifet. Times are CPU time of this
process, compiling not counted.
"""

from __future__ import annotations

import math
import statistics
import time

import numpy as np

from contracts.rng import stream
from contracts.telemetry import ProbeSamples
from controller.detect.calibration.calibrate import calibrated_threshold
from controller.detect.calibration.laws import Normal
from controller.detect.calibration.simulate import Change, delays
from controller.detect.streams.classical import PageHinkley, WindowMean
from controller.detect.streams.eprocess import Betting, Gaussian
from controller.detect.streams.protocol import StreamDetector
from controller.detect.streams.ranks import rank_detector
from controller.detect.streams.thresholds import guaranteed_threshold
from scripts.studies.detection.cases import ARL0, SEED, Figures, all_figures, changes, yardstick
from scripts.studies.detection.measured import plan_for, shipped
from scripts.studies.detection.replay import replayed_figures
from scripts.studies.detection.river import river_figures, river_missing
from scripts.studies.detection.stream_evidence import accumulate_probes, initial_evidence
from scripts.studies.detection.warm import warm

STREAMS = 10_000


def run() -> dict[str, object]:
    """All figures, flat; machine and versions are added by the command."""
    warm()
    flat: dict[str, object] = {"seed": SEED, "arl0_declared": ARL0, "river": river_missing() or "compared"}
    for row in [*figures(), *replayed_figures()]:
        flat |= flattened(row)
    for name, spent_ms in update_ms().items():
        flat[f"update_ms_10000_streams/{name}"] = round(spent_ms, 4)
    flat["update_ms_10000_streams"] = flat["update_ms_10000_streams/betting"]
    flat["fold_ms_per_fleet_12_probes"] = round(accumulate_ms(), 5)
    return flat | far_thresholds()


def figures() -> list[Figures]:
    """Every detector on every synthetic stream."""
    rows: list[Figures] = []
    for family in ("normal", "ones"):
        rows += all_figures(family)
        if not river_missing():
            streams = changes(family)
            rows += river_figures(streams, [yardstick(change) for change in streams])
    return rows


def flattened(row: Figures) -> dict[str, object]:
    """One row as flat keys."""
    base = f"{row.detector}/{row.stream}"
    return {
        f"{base}/arl0_declared": row.arl0_declared,
        f"{base}/arl0_measured": round(row.arl0_measured),
        f"{base}/delay": round(row.delay, 3),
        **({} if math.isnan(row.delay_worst) else {f"{base}/delay_worst": round(row.delay_worst, 3)}),
        f"{base}/delay_ratio_to_known_cusum": round(row.ratio, 4),
        f"{base}/missed_rate": round(row.missed_rate, 4),
        f"{base}/false_alarm_rate": float(f"{1.0 / row.arl0_measured:.4g}"),
        f"{base}/mean_time_ratio": round(row.arl0_measured / row.delay * (1.0 - row.missed_rate), 2),
    }


def update_ms() -> dict[str, float]:
    """CPU milliseconds of one update of 10,000 streams, median of 30."""
    rng = stream(SEED, "bench_detect")
    detectors: dict[str, StreamDetector] = {
        "betting": Betting(null_mean=1.0),
        "gaussian": Gaussian(),
        "rank": rank_detector(rng.normal(size=1000)),
        "window-60": WindowMean(length=60),
        "page-hinkley": PageHinkley(),
    }
    return {name: _update_ms(detector, rng) for name, detector in detectors.items()}


def _update_ms(detector: StreamDetector, rng: np.random.Generator) -> float:
    state, present = detector.initial(STREAMS), np.ones(STREAMS, dtype=np.bool_)
    spent = []
    for _ in range(30):
        values = rng.normal(1.0, 0.3, STREAMS)
        before = time.process_time()
        detector.advance(state, values, present)
        spent.append((time.process_time() - before) * 1000.0)
    return statistics.median(spent)


def accumulate_ms() -> float:
    """CPU milliseconds per fleet of folding 12 probes into the shipped contract's streams, for 64 fleets."""
    samples, fleets = shipped("bf16"), 64
    if samples is None:
        return float("nan")
    plan, rng = plan_for(samples, 1.0), stream(SEED, "fold")
    shape = (fleets, 12)
    probes = ProbeSamples(
        replica=np.broadcast_to(np.arange(12), shape).copy(), slice=rng.integers(0, 5, shape),
        prompt=np.zeros(shape, dtype=np.int64), sampled_at_ms=np.zeros(shape),
        values=samples.values[0, rng.integers(0, samples.prompt_ids.size, shape), 0],
        valid=np.ones(shape, dtype=np.bool_),
    )  # fmt: skip
    state, spent = initial_evidence(fleets, 12, plan), []
    for _ in range(30):
        before = time.process_time()
        accumulate_probes(state, probes, probes.valid, np.arange(12, dtype=np.int64), plan)
        spent.append((time.process_time() - before) * 1000.0 / fleets)
    return statistics.median(spent)


def far_thresholds() -> dict[str, object]:
    """Thresholds and delays (shift of 1) at run lengths that no simulation reaches."""
    flat: dict[str, object] = {}
    for arl0 in (1e7, 1e9):
        calibrated = calibrated_threshold(Gaussian(), Normal(), arl0, seed=SEED)
        for kind, threshold in (
            ("calibrated", calibrated.threshold),
            ("guaranteed", guaranteed_threshold(arl0)),
        ):
            found = delays(
                Gaussian(), threshold, Change(Normal(), Normal(mean=1.0), 1000), runs=2000, seed=SEED
            )
            flat[f"e-SR {kind}/N1/arl0_{arl0:.0e}/threshold"] = round(threshold, 4)
            flat[f"e-SR {kind}/N1/arl0_{arl0:.0e}/delay"] = round(found.mean, 3)
    return flat
