"""Manual actions of an operator on the supervisor's memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.supervise.meta import NO_REASON, OPERATOR, Memory, hand_over
from controller.supervise.switch_counter import begin_anew


def demote_by_operator(memory: Memory, fleets: NDArray[np.bool_], now_s: NDArray[np.float64]) -> Memory:
    """The baseline drives ``fleets`` bool [B] until an operator resets them."""
    driving = fleets & ~np.asarray(memory["demoted"], dtype=np.bool_)
    return hand_over(memory, driving, np.full(len(fleets), OPERATOR), now_s)


def reset_by_operator(memory: Memory, fleets: NDArray[np.bool_]) -> Memory:
    """The policy of ``fleets`` bool [B] drives again, with its returns unspent."""
    return {
        **begin_anew(memory, fleets),
        "demoted": np.asarray(memory["demoted"], dtype=np.bool_) & ~fleets,
        "reason": np.where(fleets, NO_REASON, memory["reason"]),
        "repromotions": np.where(fleets, 0, memory["repromotions"]),
        "shed_ratio": np.where(fleets, 0.0, memory["shed_ratio"]),
        "decision_ms": np.where(fleets[:, None], np.nan, memory["decision_ms"]),
    }
