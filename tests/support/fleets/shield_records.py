"""Records of one fleet for the shield's passes, of numbers or of symbols."""

from __future__ import annotations

from typing import Any

import numpy as np

from controller.options import ShieldLimits
from controller.shield.records import STAGES, Facts, Outcome, Work


def make_facts(
    *, allowed: np.ndarray, offered_rps: np.ndarray, limit_rps: np.ndarray, **changes: Any
) -> Facts:
    """Facts of a fleet of no canaries whose last kernel is known good, rows in the order of the contract.

    allowed: bool [S, K]. By default the proposal and the last table shed everything, and a certified kernel
    lives for every row.
    """
    slices, kernels = allowed.shape
    limits = ShieldLimits()
    shed = np.tile(np.eye(kernels + 1)[-1], (slices, 1))
    plain = Facts(
        proposed=shed,
        last=shed,
        allowed=allowed,
        failover=np.full(slices, -1),
        may_move=np.ones(slices, dtype=np.bool_),
        offered_rps=offered_rps,
        limit_rps=limit_rps,
        capacity_rps=limit_rps,
        comfort_rps=limit_rps,
        loss=np.ones((slices, kernels)),
        canary=np.zeros(kernels, dtype=np.bool_),
        order=np.arange(slices),
        known_good=kernels - 1,
        least_canary=limits.canary_least_ratio,
        most_canary=limits.canary_most_ratio,
        most_shed=limits.max_shed_ratio,
        most_moved=limits.max_move_ratio,
    )
    return plain._replace(**changes)


def blank_outcome(facts: Facts, dtype: type = float) -> Outcome:
    """An empty result; numbers are ``dtype``."""
    slices, kernels = facts.allowed.shape
    return Outcome(
        table=np.zeros((slices, kernels + 1), dtype=dtype),
        target=np.zeros((slices, kernels + 1), dtype=dtype),
        reason=np.zeros(slices, dtype=np.int64),
        size=np.zeros((slices, len(STAGES)), dtype=dtype),
        voluntary=np.zeros(slices, dtype=np.bool_),
        bounded=np.zeros(kernels, dtype=np.bool_),
        most_rps=facts.limit_rps.copy(),
    )


def blank_work(facts: Facts, dtype: type = float) -> Work:
    """Work arrays; numbers are ``dtype``."""
    slices, kernels = facts.allowed.shape
    return Work(
        headroom_rps=np.zeros(kernels, dtype=dtype),
        overflow=np.zeros(slices, dtype=dtype),
        slowed=np.zeros((slices, kernels + 1), dtype=dtype),
        seen=np.zeros(kernels, dtype=np.bool_),
        queue=np.zeros(kernels, dtype=np.int64),
        open_=np.zeros((slices, kernels), dtype=np.bool_),
    )
