"""Quality of a window of an episode: total variation to the reference per token, and what is preserved of it.

A token that was offered and never answered counts as all loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.scoring.episode import EpisodeRecord
from contracts.scoring.incident_measures import onset_row


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceQuality:
    """Sums over a window, per slice: what quality is computed from, and what may be pooled. Output tokens."""

    offered_tokens: NDArray[np.float64]  # [S]
    answered_tokens: NDArray[np.float64]  # [S]
    failed_or_shed_tokens: NDArray[np.float64]  # [S] that failed and shed requests would have had
    excess_tv_tokens: NDArray[np.float64]  # [S] sum of the excess TV over answered tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityMeasures:
    """Quality of the window. Tuples hold one number per slice, the others weigh slices by offered tokens."""

    loss: float  # excess TV per offered token, a token that failed or was shed counting as 1
    preservation: float  # (1 - loss) over (1 - loss) of the healthy baseline
    loss_served: float  # mean excess TV of answered tokens alone
    loss_by_slice: tuple[float, ...]
    preservation_by_slice: tuple[float, ...]
    loss_served_by_slice: tuple[float, ...]


def slice_quality(record: EpisodeRecord, from_row: int = 0, to_row: int | None = None) -> SliceQuality:
    """Token sums of the rows [from_row, to_row).

    The tokens that a failed or shed request would have had are not known: each counts the slice's mean
    offered tokens per request, over the whole episode.
    """
    span = slice(from_row, to_row)
    requests = np.maximum(record.offered.sum(axis=0), 1)
    per_request = record.offered_tokens.sum(axis=0) / requests
    failed_or_shed = (record.failed[span] + record.shed[span]).sum(axis=0)
    return SliceQuality(
        offered_tokens=record.offered_tokens[span].sum(axis=0),
        answered_tokens=record.answered_tokens[span].sum(axis=0),
        failed_or_shed_tokens=failed_or_shed * per_request,
        excess_tv_tokens=record.excess_tv_tokens[span].sum(axis=0),
    )


def pool_quality(parts: list[SliceQuality]) -> SliceQuality:
    """Sum of several windows, e.g. the healthy windows of all seeds."""
    return SliceQuality(
        offered_tokens=np.sum([part.offered_tokens for part in parts], axis=0),
        answered_tokens=np.sum([part.answered_tokens for part in parts], axis=0),
        failed_or_shed_tokens=np.sum([part.failed_or_shed_tokens for part in parts], axis=0),
        excess_tv_tokens=np.sum([part.excess_tv_tokens for part in parts], axis=0),
    )


def healthy_quality(record: EpisodeRecord) -> SliceQuality:
    """The window before the fault (the whole episode where there is none).

    Of the *fixed* configuration, whose table is the home table, this is the healthy baseline: every slice on
    its home kernel, nothing injected, same arrivals as every other policy.
    """
    return slice_quality(record, 0, onset_row(record))


def loss_per_slice(quality: SliceQuality) -> NDArray[np.float64]:
    """Float64 [S]: (excess TV + failed or shed) tokens / offered tokens, NaN where none were offered.

    Tokens are counted where requests end, so requests in flight at the onset are in, those still in
    flight at the horizon are not.
    """
    return _ratios(quality.excess_tv_tokens + quality.failed_or_shed_tokens, quality.offered_tokens)


def served_loss_per_slice(quality: SliceQuality) -> NDArray[np.float64]:
    """Float64 [S]: mean excess TV of answered tokens alone, NaN where none were answered."""
    return _ratios(quality.excess_tv_tokens, quality.answered_tokens)


def preservation_per_slice(quality: SliceQuality, healthy: SliceQuality) -> NDArray[np.float64]:
    """Float64 [S]: (1 - loss in the window) / (1 - loss of the healthy baseline), per slice.

    1 is as good as the healthy fleet; above 1 is possible, because the kernel of a fallback may be better
    than the home kernel.
    """
    return _ratios(1.0 - loss_per_slice(quality), 1.0 - loss_per_slice(healthy))


def measure_quality(quality: SliceQuality, healthy: SliceQuality) -> QualityMeasures:
    """Loss and preservation of a window, per slice and weighted by offered tokens."""
    loss, kept = loss_per_slice(quality), preservation_per_slice(quality, healthy)
    offered = quality.offered_tokens
    return QualityMeasures(
        loss=_weighted(loss, offered),
        preservation=_weighted(kept, offered),
        loss_served=ratio_of(float(quality.excess_tv_tokens.sum()), float(quality.answered_tokens.sum())),
        loss_by_slice=tuple(loss.tolist()),
        preservation_by_slice=tuple(kept.tolist()),
        loss_served_by_slice=tuple(served_loss_per_slice(quality).tolist()),
    )


def ratio_of(part: float, whole: float) -> float:
    """``part / whole``; NaN for an empty whole."""
    return part / whole if whole > 0 else math.nan


def _ratios(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """Elementwise ``ratio_of``."""
    out: NDArray[np.float64] = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return out


def _weighted(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Mean of ``values`` weighted by ``weights``, where both are known."""
    known = np.isfinite(values) & (weights > 0)
    return ratio_of(float((values[known] * weights[known]).sum()), float(weights[known].sum()))
