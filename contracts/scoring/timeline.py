"""One episode as lines over time: where traffic went, what the controller believed, what answers were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.loading.files import plain
from contracts.scoring.episode import EpisodeRecord
from contracts.scoring.incident_measures import measure_incident
from contracts.scoring.quality import slice_quality

QUALITY_WINDOW_S = 10.0
_ARRAYS = ("at_s", "weights", "health", "quality")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One episode of one policy, as lines over time.

    onset_at_s: fault onset. recovered_at_s: end of the incident, NaN while it lasts.
    """

    policy: str
    kernels: tuple[str, ...]
    at_s: NDArray[np.float64]  # [T]
    weights: NDArray[np.float64]
    """[T, K + 1], routing weights averaged over slices by offered traffic, last column shed."""
    health: NDArray[np.float64]  # [T, K], worst over slices, as the controller believed
    quality: NDArray[np.float64]
    """[T], 1 - (excess TV + failed or shed) per offered token, over the trailing 10 s."""
    onset_at_s: float
    recovered_at_s: float


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
        onset_at_s=record.incident.onset_at_s if record.incident else np.nan,
        recovered_at_s=found.onset_at_s + found.mttr_s if found is not None and recovered else np.nan,
    )


def unknown_health(record: EpisodeRecord) -> NDArray[np.float64]:
    """Float64 [T, K, S] of NaN: what the controller believed is not known."""
    return np.full((len(record.table), len(record.kernels), len(record.slices)), np.nan)


def trailing_quality(record: EpisodeRecord) -> NDArray[np.float64]:
    """Float64 [T]: 1 - (excess TV + failed or shed) per token of the trailing 10 s; NaN where none ended."""
    rows = max(1, round(QUALITY_WINDOW_S / record.tick_s))
    values = np.full(len(record.table), np.nan)
    for row in range(len(values)):
        part = slice_quality(record, max(0, row + 1 - rows), row + 1)
        failed_or_shed, answered = part.failed_or_shed_tokens.sum(), part.answered_tokens.sum()
        if failed_or_shed + answered > 0:
            values[row] = 1.0 - (part.excess_tv_tokens.sum() + failed_or_shed) / (failed_or_shed + answered)
    return values


def timeline_plain(line: Timeline) -> dict[str, Any]:
    """``line`` as JSON holds it; null for what is not known."""
    found: dict[str, Any] = plain(
        {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in _items(line)}
    )
    return found


def timeline_of(found: Mapping[str, Any]) -> Timeline:
    """What ``timeline_plain`` wrote; KeyError, TypeError or ValueError for anything else."""
    arrays = {name: np.array(found[name], dtype=np.float64) for name in _ARRAYS}
    kernels = tuple(map(str, found["kernels"]))
    rows, many = arrays["at_s"].size, len(kernels)
    expected = {"at_s": (rows,), "weights": (rows, many + 1), "health": (rows, many), "quality": (rows,)}
    shapes = {name: one.shape for name, one in arrays.items()}
    if shapes != expected:
        raise ValueError(f"expected lines of shapes {expected}, got {shapes}")
    return Timeline(
        policy=str(found["policy"]),
        kernels=kernels,
        onset_at_s=_number(found["onset_at_s"]),
        recovered_at_s=_number(found["recovered_at_s"]),
        **arrays,
    )


def _items(line: Timeline) -> list[tuple[str, Any]]:
    return list(asdict(line).items())


def _number(given: object) -> float:
    return float("nan") if given is None else float(str(given))
