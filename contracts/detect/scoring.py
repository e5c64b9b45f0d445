"""Scores of a drift detector in the field's words (river.drift, Bifet 2013), from alarm instants alone.

Any detector can be scored: what is needed is when it alarmed in runs whose change is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftScore:
    """Scores over ``runs`` runs; units of time are samples.

    delay, delay_error: mean time from the change to the first alarm after it, of runs that found it, and its
    standard error. missed_rate: share of runs without one. false_alarm_rate: alarms before the change per
    sample there; mean_time_to_false_alarm: its inverse (inf: none). mean_time_ratio: Bifet's MTR,
    mean time between false alarms over mean time to detection, times the share found.
    """

    runs: int
    delay: float
    delay_error: float
    missed_rate: float
    false_alarms: int
    false_alarm_rate: float
    mean_time_to_false_alarm: float
    mean_time_ratio: float


def score(alarm_at: list[NDArray[np.int64]], change_at: int, length: int) -> DriftScore:
    """Score runs of ``length`` samples that change after ``change_at`` of them.

    alarm_at: one ascending array per run, index (from 0) of every sample at which an alarm rose; the
    detector starts anew after each. ``change_at == length``: a run without a change.
    """
    if not (alarm_at and 0 < change_at <= length):
        raise ValueError(
            f"expected runs, and 0 < change <= length, got {len(alarm_at)}, {change_at}, {length}"
        )
    false = sum(int((run < change_at).sum()) for run in alarm_at)
    first = [run[run >= change_at][:1] for run in alarm_at]
    found = np.concatenate(first).astype(np.float64) - change_at + 1.0
    changed = change_at < length
    rate = false / (len(alarm_at) * change_at)
    between = 1.0 / rate if rate > 0.0 else math.inf
    delay = float(found.mean()) if found.size else math.nan
    missed = 1.0 - found.size / len(alarm_at) if changed else math.nan
    return DriftScore(
        runs=len(alarm_at),
        delay=delay,
        delay_error=float(found.std() / math.sqrt(found.size)) if found.size else math.nan,
        missed_rate=missed,
        false_alarms=false,
        false_alarm_rate=rate,
        mean_time_to_false_alarm=between,
        mean_time_ratio=between / delay * (1.0 - missed) if changed and found.size else math.nan,
    )
