"""The one incident that a report shows in full, as timelines."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.scoring.episode import EpisodeRecord
from contracts.scoring.incident_measures import measure_incident
from contracts.scoring.quality import slice_quality
from scripts.e5.report.plots import Timeline

QUALITY_WINDOW_S = 10.0


def timeline(record: EpisodeRecord, health: NDArray[np.float64], policy: str) -> Timeline:
    """Timeline of ``record``; ``health`` is float64 [T, K, S] as the controller believed it."""
    offered = record.offered.sum(axis=0).astype(np.float64)
    share = offered / max(offered.sum(), 1.0)
    found = measure_incident(record)
    recovered = found is not None and found.recovered
    return Timeline(
        policy=policy,
        kernels=record.kernels,
        at_s=np.arange(1, len(record.table) + 1, dtype=np.float64) * record.tick_s,
        weights=(record.table * share[None, :, None]).sum(axis=1),
        health=health.max(axis=2),
        quality=trailing_quality(record),
        onset_s=record.incident.onset_at_s if record.incident else np.nan,
        recovered_s=found.onset_at_s + found.mttr_s if found is not None and recovered else np.nan,
    )


def trailing_quality(record: EpisodeRecord) -> NDArray[np.float64]:
    """Float64 [T]: 1 - (excess TV + lost) per token that ended in the trailing 10 s; NaN where none did."""
    rows = max(1, round(QUALITY_WINDOW_S / record.tick_s))
    values = np.full(len(record.table), np.nan)
    for row in range(len(values)):
        part = slice_quality(record, max(0, row + 1 - rows), row + 1)
        lost, answered = part.failed_or_shed_tokens.sum(), part.answered_tokens.sum()
        if lost + answered > 0:
            values[row] = 1.0 - (part.excess_tv_tokens.sum() + lost) / (lost + answered)
    return values
