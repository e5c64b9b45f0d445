"""Compile everything once, into numba's cache, so that nobody pays for it later."""

from __future__ import annotations

import numpy as np

from contracts.detect.calibrate import calibrated_threshold
from contracts.detect.classical import Ewma, PageHinkley, WindowMean, gaussian_cusum
from contracts.detect.eprocess import Betting, Gaussian
from contracts.detect.fold_compiled import fold_one_each, fold_probe_list
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
    evidence, statistic, since = np.zeros((1, 1, 1, 1, 3)), np.zeros((1, 1, 1, 1)), np.zeros((1, 1, 1, 1, 2))
    health, healthy = np.zeros((1, 1, 1, 1, 3)), np.zeros((1, 1, 1, 1))
    one, flag, zero = np.ones(1), np.ones(1, dtype=np.bool_), np.zeros(1, dtype=np.int64)
    grid = np.full((1, 3), 0.3)
    two = one + 1.0
    fold_probe_list(
        evidence, statistic, since, health, healthy, zero, flag[None], zero[None], zero[None],
        np.zeros((1, 1, 1)), zero, zero, one, one, flag[None], zero + 2, flag, flag, one, one, one, grid,
        grid, one, two,
    )  # fmt: skip
    fold_one_each(
        evidence, statistic, since, health, healthy, np.zeros((1, 1, 1, 1)), np.ones((1, 1, 1, 1), np.bool_),
        flag[None], zero + 2, one, grid, grid, one, two,
    )  # fmt: skip
