"""What a fixed bank is worth: ARL0 conditional on the bank, over many banks of the same law."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from contracts.detect.laws import Law
from contracts.detect.protocol import Floats
from contracts.detect.ranks import rank_detector
from contracts.detect.simulate import false_alarms


@dataclass(frozen=True, slots=True, kw_only=True)
class BankArls:
    """ARL0 over banks: arl float64 [banks]; 5 % quantile, median, harmonic mean.

    harmonic_mean: units per alarm of a fleet whose replicas each have a bank of their own.
    """

    arl: Floats
    low: float
    median: float
    harmonic_mean: float


def bank_arls(
    banks: Floats, law: Law, threshold: float, *, streams: int, samples: int, seed: int
) -> BankArls:
    """Measure each of ``banks`` float64 [banks, n] as a fixed bank against healthy units of ``law``.

    A bank without an alarm counts one at the end: its ARL0 is known from below only.
    """
    found = [
        false_alarms(
            rank_detector(bank, joins=False),
            threshold,
            law,
            streams=streams,
            samples=samples,
            seed=seed + index,
        )
        for index, bank in enumerate(banks)
    ]
    arl = np.array([one.samples / max(one.alarms, 1) for one in found])
    return BankArls(
        arl=arl,
        low=float(np.quantile(arl, 0.05)),
        median=float(np.median(arl)),
        harmonic_mean=math.inf if not arl.size else float(1.0 / np.mean(1.0 / arl)),
    )
