"""Certified values: the values of each golden prompt on each healthy kernel at its certification.

Drift from the certified baseline (``controller.detect.certified_drift``) compares every probe with them.
Several repeats are kept as they were measured: a probe that equals any of them has the certified value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CertifiedValues:
    """Healthy values of P probe prompts, J repeats, M probe metrics of the layout, per kernel."""

    prompts: NDArray[np.int64]  # [P] ids, ascending
    slice: NDArray[np.int64]  # [P] index in the layout
    values: NDArray[np.float64]  # [K, P, J, M] in the metric's unit, NaN where not measured
    repeat_noise: float  # stated relative standard deviation of a repeat (of the logarithm); 0: bit-exact

    def __post_init__(self) -> None:
        if self.values.ndim != 4 or self.values.shape[1] != self.prompts.size:
            raise ValueError(f"values: expected [K, {self.prompts.size}, J, M], got {self.values.shape}")
        if self.slice.shape != self.prompts.shape:
            raise ValueError(f"slice: expected shape {self.prompts.shape}, got {self.slice.shape}")
        if not bool((np.diff(self.prompts) > 0).all()):
            raise ValueError("prompts: expected ascending ids, each once")
        if not (math.isfinite(self.repeat_noise) and self.repeat_noise >= 0.0):
            raise ValueError(f"repeat_noise: expected a number >= 0, got {self.repeat_noise}")

    def rows(self, prompts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Place of each prompt id on the axis P, -1 where it was never certified; in their shape."""
        if self.prompts.size == 0:
            return np.full(prompts.shape, -1, dtype=np.int64)
        place = np.minimum(np.searchsorted(self.prompts, prompts), self.prompts.size - 1)
        return np.where(self.prompts[place] == prompts, place, -1).astype(np.int64)


def certified_values(
    prompts: NDArray[np.int64],
    slices: NDArray[np.int64],
    per_kernel: Sequence[NDArray[np.float64]],
    repeat_noise: float,
) -> CertifiedValues:
    """From the healthy values float64 [P, J, M] of each kernel; numbers of repeats J may differ."""
    order = np.argsort(prompts, kind="stable")
    repeats = max(values.shape[1] for values in per_kernel)
    padded = [
        np.pad(values, ((0, 0), (0, repeats - values.shape[1]), (0, 0)), constant_values=np.nan)
        for values in per_kernel
    ]
    stacked = np.ascontiguousarray(np.stack(padded)[:, order])
    return CertifiedValues(
        prompts=prompts[order], slice=slices[order], values=stacked, repeat_noise=repeat_noise
    )
