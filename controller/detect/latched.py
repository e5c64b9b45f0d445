"""What detectors share whose memory is alarms and sums alone: nothing is known between two judgements."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.jit import compiled
from controller.cells import by_cell, some_of
from controller.detect.clauses import moves_traffic
from controller.detect.detector import DetectorState, blanked, flags


def forgotten(state: DetectorState, mask: NDArray[np.bool_]) -> DetectorState:
    """Every array [B, U, S, C, ...] of ``state`` back at 0 or False where ``mask`` bool [B, U, S, C]."""
    places = np.nonzero(mask)
    return {name: blanked(array, array.dtype.type(0), places) for name, array in state.items()}


def latched(state: DetectorState, contract: CompiledContract) -> NDArray[np.float64]:
    """float64 [B, U, S]: 1 where a clause that moves traffic is in alarm, else 0 (``evidence_ratio``)."""
    alarm = flags(state, "alarm")
    ratio = np.zeros(alarm.shape[:3])
    _latch(ratio, alarm, moves_traffic(contract))
    return ratio


@compiled
def _latch(ratio, alarm, moves):
    """1 in ``ratio`` [B, U, S] where a clause of ``moves`` bool [C] is in ``alarm`` [B, U, S, C]."""
    cells = by_cell(alarm)
    for b in range(alarm.shape[0]):
        for u in range(alarm.shape[1]):
            if not some_of(cells, b, u):
                continue
            for s in range(alarm.shape[2]):
                for c in range(alarm.shape[3]):
                    if alarm[b, u, s, c] and moves[c]:
                        ratio[b, u, s] = 1.0
