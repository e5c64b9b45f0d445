"""Benchmark of the detectors: ``selvage bench detect``.

Keys are ``<detector>/<stream>/<figure>``: N0.5, N1, N2 are normal observations whose mean moves by so many
standard deviations, B0.05 and B0.2 are 0/1 observations whose rate moves there from 0.01. Delays count
observations after a change at 1,000; ``delay_ratio_to_known_cusum`` is against CUSUM with both laws known,
at the same measured ARL0.
Streams named like a profile's condition replay measured drifts (slice numbers); there the yardstick is
CUSUM on a declared binning. ``missed_rate``, ``false_alarm_rate`` and ``mean_time_ratio`` (time between
false alarms over delay, times the share found) are terms of river and Bifet. Times are CPU time of this
process, without compiling.
"""

from __future__ import annotations

import math

from controller.detect.calibration.calibrate import calibrated_threshold
from controller.detect.calibration.laws import Normal
from controller.detect.calibration.simulate import LawChange, delays
from controller.detect.streams.eprocess import Gaussian
from controller.detect.streams.protocol import guaranteed_threshold
from scripts.studies.detection.cases import ARL0, SEED, Figures
from scripts.studies.detection.replay import replayed_figures
from scripts.studies.detection.river import river_missing, synthetic_figures
from scripts.studies.detection.speed import accumulate_ms, update_ms, warm


def run() -> dict[str, object]:
    """All figures, flat; machine and versions are added by the command."""
    warm()
    flat: dict[str, object] = {"seed": SEED, "arl0_declared": ARL0, "river": river_missing() or "compared"}
    for row in [*synthetic_figures(), *replayed_figures()]:
        flat |= flattened(row)
    for name, spent_ms in update_ms().items():
        flat[f"update_ms_10000_streams/{name}"] = round(spent_ms, 4)
    flat["update_ms_10000_streams"] = flat["update_ms_10000_streams/betting"]
    flat["accumulate_ms_per_fleet_12_probes"] = round(accumulate_ms(), 5)
    return flat | far_thresholds()


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
                Gaussian(), threshold, LawChange(Normal(), Normal(mean=1.0), 1000), runs=2000, seed=SEED
            )
            flat[f"e-SR {kind}/N1/arl0_{arl0:.0e}/threshold"] = round(threshold, 4)
            flat[f"e-SR {kind}/N1/arl0_{arl0:.0e}/delay"] = round(found.mean, 3)
    return flat
