"""Comparison of simulated with live times, on the scale of the difference between two live runs.

A quantile agrees if its error is at most a tenth, or one and a half times the difference between two live
runs of the same arrivals, whichever is more. The 99th percentile is reported but not judged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.documents.serving_path import ServingPath
from scripts.output import table
from scripts.parity.recording import GAP, TIMES, ParityRecording, RecordedRun
from scripts.parity.replaying import load_of, replay

QUANTILES = (50, 90, 99)
JUDGED = (50, 90)
LEAST_ALLOWED, TIMES_YARDSTICK = 0.10, 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedQuantile:
    """One quantile at one rate. error: simulated over live, less 1; yardstick: the same of live over live.

    yardstick is NaN if there was only one live run; within: None if it is not judged.
    """

    rate_rps: float
    calibrated_here: bool
    time: str
    quantile: int
    live_ms: float
    simulated_ms: float
    error: float
    yardstick: float
    allowed: float
    within: bool | None


def compared(recording: ParityRecording, serving: ServingPath | None) -> list[ComparedQuantile]:
    """Every rate, time and quantile of ``recording``, simulated with the terms ``serving``."""
    found: list[ComparedQuantile] = []
    for rate in recording.rates_rps:
        runs = recording.at(rate)
        live = [quantiles(run.times, run) for run in runs]
        simulated = np.mean(
            [
                quantiles(replay(load_of(run), recording.step_time, serving, recording.limits), run)
                for run in runs
            ],
            axis=0,
        )
        here = rate == recording.calibrate_rps
        found += [
            _compared(rate, here, (time, at), [one[time, at] for one in live], float(simulated[time, at]))
            for time in range(len(TIMES))
            for at in range(len(QUANTILES))
        ]
    return found


def quantiles(times_ms: NDArray[np.float64], run: RecordedRun) -> NDArray[np.float64]:
    """``QUANTILES`` of each of ``times_ms`` [n, 3] of the requests of ``run``, ms, [3, quantiles]."""
    several = np.array(run.answer_tokens) > 1
    columns = [times_ms[several if time == GAP else slice(None), time] for time in range(len(TIMES))]
    answered = [column[np.isfinite(column)] for column in columns]
    return np.array(
        [np.percentile(one, QUANTILES) if one.size else np.full(len(QUANTILES), np.nan) for one in answered]
    )


def _compared(
    rate_rps: float, here: bool, place: tuple[int, int], live: Sequence[float], simulated_ms: float
) -> ComparedQuantile:
    time, at = place
    live_ms = float(np.mean(live))
    yardstick = max(live) / min(live) - 1.0 if len(live) > 1 else math.nan
    error = simulated_ms / live_ms - 1.0
    allowed = max(LEAST_ALLOWED, TIMES_YARDSTICK * yardstick) if len(live) > 1 else LEAST_ALLOWED
    judged = QUANTILES[at] in JUDGED and not here
    return ComparedQuantile(
        rate_rps=rate_rps,
        calibrated_here=here,
        time=TIMES[time],
        quantile=QUANTILES[at],
        live_ms=live_ms,
        simulated_ms=simulated_ms,
        error=error,
        yardstick=yardstick,
        allowed=allowed,
        within=bool(abs(error) <= allowed) if judged else None,
    )


def lines_of(found: Sequence[ComparedQuantile]) -> list[str]:
    """Markdown: a row per rate, time and quantile; values out of bounds are marked as misses."""
    said = {True: "yes", False: "**miss**", None: ""}
    head = ("requests/s", "time", "p", "live, ms", "simulated, ms", "error", "live/live", "allowed", "within")
    rows = [
        (
            f"{one.rate_rps:g}{' (calibrated)' if one.calibrated_here else ''}",
            one.time,
            str(one.quantile),
            f"{one.live_ms:.1f}",
            f"{one.simulated_ms:.1f}",
            f"{100.0 * one.error:+.0f} %",
            "" if math.isnan(one.yardstick) else f"{100.0 * one.yardstick:.0f} %",
            f"{100.0 * one.allowed:.0f} %",
            said[one.within],
        )
        for one in found
    ]
    return table(head, rows)
