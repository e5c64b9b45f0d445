"""Switch episodes: how often traffic is moved, and whether the truth gave a reason.

What a row episode of a slice is says ``contracts.scoring.switch_law``. Per replica a *quarantine episode*
opens when the controller takes it out and closes after 60 s without a change.

An episode is *true* if what it leaves (a kernel that loses weight on the slice, or the replica)
violates the contract on that slice, or did within the last 60 s; for a quarantine, on any slice. A row
move that the record marks as made for capacity, onto kernels that comply, is counted apart, and
so is one that only takes traffic out of the shed column. Everything else is *false*. Returning to a
kernel after its fault is gone leaves a compliant kernel, so it counts as false by this rule.

By this rule a kernel violates while any replica does, a quarantined or dead one too. Beside it stand the
false switches *in rotation*: the same, but a kernel is judged by what its replicas did while in rotation.
Going home for capacity to a kernel whose violating replica is out is no false switch by it; leaving one is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from contracts.scoring.episode import EpisodeRecord
from contracts.scoring.incident_measures import breaking
from contracts.scoring.switch_law import SETTLE_S, half_l1, row_spans
from contracts.units import SECONDS_PER_MONTH

#: A kernel is left, or joined, when its weight changes by more than this.
SHARE_TOLERANCE = 0.01


class SwitchVerdict(StrEnum):
    """What the truth says of a switch episode."""

    TRUE = "true"
    FALSE = "false"
    CAPACITY = "capacity"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchEpisode:
    """One episode of a slice's row of the table, or of a replica's quarantine."""

    opened_row: int
    closed_row: int
    index: int  # of the replica for a quarantine, else of the slice
    verdict: SwitchVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchMeasures:
    """Counts of one episode record: episodes of rows and quarantines together unless said otherwise."""

    true_switches: int
    false_switches: int
    false_switches_in_rotation: int  # as ``false_switches``, kernels judged by replicas in rotation alone
    false_quarantines: int  # those of ``false_switches`` that are quarantines
    capacity_moves: int
    slice_months: float  # S * T * tick_s in months, the exposure of the counts
    weight_moved: float  # sum over rows and slices of half the L1 change of the table


def recently_breaking(record: EpisodeRecord, *, in_rotation: bool = False) -> NDArray[np.bool_]:
    """Bool [T, R, S]: the pair broke the contract in this row or within the last 60 s.

    in_rotation: only what it broke while the replica was in rotation.
    """
    rows = max(1, round(SETTLE_S / record.tick_s))
    broken = breaking(record) & record.in_rotation[:, :, None] if in_rotation else breaking(record)
    count = np.cumsum(broken, axis=0, dtype=np.int32)
    recent = count.copy()
    recent[rows + 1 :] -= count[: -rows - 1]
    out: NDArray[np.bool_] = recent > 0
    return out


def row_episodes(record: EpisodeRecord, *, in_rotation: bool = False) -> list[SwitchEpisode]:
    """Episodes of every slice's row, by slice and time; kernels judged by all replicas or by those
    ``in_rotation``.
    """
    settle = max(1, round(SETTLE_S / record.tick_s))
    kernel_bad = _kernel_breaking(recently_breaking(record, in_rotation=in_rotation), record)
    return [
        SwitchEpisode(
            opened_row=opened,
            closed_row=closed,
            index=index,
            verdict=_row_verdict(
                record.table[opened, index] - settled,
                kernel_bad[opened, :, index],
                bool(record.capacity_rows[opened, index]),
            ),
        )
        for index in range(len(record.slices))
        for opened, closed, settled in row_spans(record.table[:, index], settle)
    ]


def _kernel_breaking(recent: NDArray[np.bool_], record: EpisodeRecord) -> NDArray[np.bool_]:
    """Bool [T, K, S]: some replica of the kernel broke the contract on the slice lately (``recent``)."""
    member = record.replica_kernel[None, :] == np.arange(len(record.kernels))[:, None]
    return np.stack([recent[:, mine].any(axis=1) for mine in member], axis=1)


def _row_verdict(moved: NDArray[np.float32], bad: NDArray[np.bool_], for_capacity: bool) -> SwitchVerdict:
    """Verdict on a move ``moved`` [K + 1] (gain of weight); ``bad`` [K]: kernels that break the contract."""
    left, joined = moved[:-1] < -SHARE_TOLERANCE, moved[:-1] > SHARE_TOLERANCE
    if (left & bad).any():
        return SwitchVerdict.TRUE
    if not left.any() or (for_capacity and not (joined & bad).any()):
        return SwitchVerdict.CAPACITY
    return SwitchVerdict.FALSE


def quarantine_episodes(record: EpisodeRecord) -> list[SwitchEpisode]:
    """Episodes of every replica's quarantine, by replica and time."""
    settle = max(1, round(SETTLE_S / record.tick_s))
    bad = np.asarray(recently_breaking(record).any(axis=2))
    episodes = []
    for index in range(len(record.replicas)):
        for opened, closed in _quarantine_spans(record.quarantined[:, index], settle):
            verdict = SwitchVerdict.TRUE if bad[opened, index] else SwitchVerdict.FALSE
            episodes.append(SwitchEpisode(opened_row=opened, closed_row=closed, index=index, verdict=verdict))
    return episodes


def _quarantine_spans(held: NDArray[np.bool_], settle_rows: int) -> list[tuple[int, int]]:
    """(opened, closed) of one replica: opens on a rise, closes after ``settle_rows`` without a change."""
    spans: list[tuple[int, int]] = []
    opened, changed_at = -1, 0
    for row in [*np.flatnonzero(held[1:] != held[:-1]) + 1, len(held) + settle_rows]:
        if opened >= 0 and row - changed_at >= settle_rows:
            spans.append((opened, min(changed_at + settle_rows, len(held))))
            opened = -1
        if row < len(held):
            opened = int(row) if opened < 0 and held[row] else opened
            changed_at = int(row)
    return spans


def measure_switches(record: EpisodeRecord) -> SwitchMeasures:
    """Episodes by verdict, with their exposure and the total weight movement."""
    rows, quarantines = row_episodes(record), quarantine_episodes(record)
    verdicts = [episode.verdict for episode in (*rows, *quarantines)]
    false_quarantines = sum(episode.verdict is SwitchVerdict.FALSE for episode in quarantines)
    false_rows = sum(
        episode.verdict is SwitchVerdict.FALSE for episode in row_episodes(record, in_rotation=True)
    )
    duration_s = len(record.table) * record.tick_s
    return SwitchMeasures(
        true_switches=verdicts.count(SwitchVerdict.TRUE),
        false_switches=verdicts.count(SwitchVerdict.FALSE),
        false_switches_in_rotation=false_rows + false_quarantines,
        false_quarantines=false_quarantines,
        capacity_moves=verdicts.count(SwitchVerdict.CAPACITY),
        slice_months=len(record.slices) * duration_s / SECONDS_PER_MONTH,
        weight_moved=float(half_l1(record.table[1:], record.table[:-1]).sum()),
    )
