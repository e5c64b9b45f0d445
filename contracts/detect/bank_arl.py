"""What a fixed bank is worth: ARL0 conditional on the bank, over many banks of the same law."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from contracts.detect.laws import Law
from contracts.detect.protocol import Floats
from contracts.detect.ranks import Rank
from contracts.detect.simulate import alarm_counts


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
    edges: Floats, banks: Floats, law: Law, threshold: float, *, streams: int, samples: int, seed: int
) -> BankArls:
    """Measure each of ``banks`` float64 [banks, n] as a fixed bank against healthy units of ``law``.

    edges: ascending, from units of no bank (``rank_edges``). streams: per bank, of ``samples`` units each.
    A bank without an alarm counts one at the end: its ARL0 is known from below only.
    """
    detector = Rank(edges=tuple(edges.tolist()), counts=(0.0,) * (edges.size + 1), joins=False)
    begin = detector.with_banks(np.repeat(banks, streams, axis=0))
    rung = alarm_counts(detector, threshold, law, samples=samples, seed=seed, begin=begin)
    arl = streams * samples / np.maximum(rung.reshape(len(banks), streams).sum(axis=1), 1)
    return BankArls(
        arl=arl,
        low=float(np.quantile(arl, 0.05)),
        median=float(np.median(arl)),
        harmonic_mean=float(1.0 / np.mean(1.0 / arl)),
    )
