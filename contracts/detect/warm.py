"""Compile everything once, into numba's cache, so that nobody pays for it later."""

from __future__ import annotations

import numpy as np

from contracts.detect.calibrate import calibrated_threshold
from contracts.detect.classical import Ewma, PageHinkley, WindowMean, gaussian_cusum
from contracts.detect.eprocess import Betting, Gaussian
from contracts.detect.fold_compiled import (
    GROUPS,
    SPREADS,
    FoldPlan,
    blank_cells,
    fold_one_each,
    fold_probe_list,
)
from contracts.detect.laws import Normal
from contracts.detect.protocol import Detector, update
from contracts.detect.ranks import rank_detector


def warm() -> None:
    """Run every compiled loop on next to nothing."""
    ranks = rank_detector(np.linspace(-1.0, 1.0, 40))
    detectors: tuple[Detector, ...] = (
        Betting(null_mean=1.0), Gaussian(), ranks, WindowMean(length=2), Ewma(gain=0.5), gaussian_cusum(1.0),
        PageHinkley(),
    )  # fmt: skip
    for detector in detectors:
        update(detector, detector.initial(2), np.zeros(2), np.ones(2, dtype=np.bool_))
    calibrated_threshold(Gaussian(), Normal(), 20.0, runs=40)
    _warm_fold()


def _warm_fold() -> None:
    one, flag, zero = np.ones(1), np.ones(1, dtype=np.bool_), np.zeros(1, dtype=np.int64)
    grid = np.full((1, 3), 0.3)
    plan = FoldPlan(
        source=zero, column=zero, threshold=one, sense=one, applies=flag[None], kind=zero + 2, is_rate=flag,
        mirrored=flag, upper=one, clip=one, null_mean=one, bets=grid, weights=grid, health_range=one + 1.0,
        gain=2.0, fair=np.zeros((1, 1, 1, SPREADS)),
    )  # fmt: skip
    cells, health = blank_cells(1, 1, 1, 1), np.ones((1, 1, 1, 1, 3))
    wanted, nowhere = np.ones((1, 1, 1, 1), dtype=np.bool_), np.empty((1, 0, 1, GROUPS + 3))
    fold_probe_list(
        cells, nowhere, health, wanted, zero, flag[None], zero[None], zero[None],
        np.zeros((1, 1, 1)), plan,
    )  # fmt: skip
    fold_one_each(cells, nowhere, health, wanted, np.ones((1, 1, 1, 1, 4)), wanted[..., 0], plan)
