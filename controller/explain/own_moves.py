"""Watched, taken-back and held moves of a tick, as records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.decision import Decision
from controller.options import ControllerSetup
from controller.state import ControllerState
from controller.supervise.own_moves_records import OwnMove


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedMove:
    """A move of one slice that is watched, was taken back or is held, with the evidence behind it.

    Blocks are some seconds of requests each; a bad one has more late or failed requests than the contract
    tolerates, or ended with a queue.
    """

    slice: str
    action: str  # an ``OwnMove``, in words
    worse: str  # subject of the evidence: the moved slice, or a kernel that gained it
    blocks_before: int
    bad_before: int
    blocks_since: int
    bad_since: int
    chance: float | None  # of as many bad blocks if nothing got worse (None: not judged yet)
    held_until_at_s: float | None  # the policy's row waits until then


def watched_moves(
    after: ControllerState, decision: Decision, setup: ControllerSetup, fleet: int
) -> tuple[WatchedMove, ...]:
    """Every row with a watched or held move."""
    return tuple(
        _watched(after, setup, fleet, int(s), OwnMove(int(decision.own_moves[fleet, s])))
        for s in np.flatnonzero(decision.own_moves[fleet] != OwnMove.NONE)
    )


def _watched(
    after: ControllerState, setup: ControllerSetup, fleet: int, s: int, action: OwnMove
) -> WatchedMove:
    memory, kernels = after.own_moves, setup.layout.kernels
    subject = int(memory["subject"][fleet, s])
    before, since = _pair(memory["control"][fleet, s]), _pair(memory["since"][fleet, s, subject])
    chance = float(np.asarray(memory["chance"], dtype=np.float64)[fleet, s])
    until_at_s = float(np.asarray(memory["held_until_at_s"], dtype=np.float64)[fleet, s])
    return WatchedMove(
        slice=setup.layout.slices[s],
        action=action.name.lower().replace("_", " "),
        worse=kernels[subject] if subject < len(kernels) else setup.layout.slices[s],
        blocks_before=before[0],
        bad_before=before[1],
        blocks_since=since[0],
        bad_since=since[1],
        chance=None if np.isnan(chance) else chance,
        held_until_at_s=until_at_s if until_at_s > after.now_s[fleet] else None,
    )


def _pair(counts: NDArray[np.generic]) -> tuple[int, int]:
    values = np.asarray(counts, dtype=np.float64)
    return int(values[0]), int(values[1])


def why_back(decision: Decision, fleet: int, s: int) -> list[str]:
    """Reason of a row's move by the watch; empty: the watch did not move it."""
    action = OwnMove(int(decision.own_moves[fleet, s]))
    if action is OwnMove.TAKEN_BACK:
        return ["the move before made things worse: taken back"]
    return ["taken back, and held"] if action is OwnMove.HELD else []
