"""What a fixed reference sample is worth: ARL0 conditional on it, over many samples of the same law."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.detect.calibration.laws import ObservationLaw
from controller.detect.calibration.simulate import alarm_counts
from controller.detect.streams.protocol import Floats
from controller.detect.streams.ranks import Rank


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceArls:
    """ARL0 in observations, over reference samples."""

    #: float64 [samples].
    arl: Floats
    #: 5 % quantile.
    low: float
    median: float
    #: Observations per alarm of a fleet whose replicas each have a reference sample of their own.
    harmonic_mean: float


def reference_arls(
    edges: Floats,
    references: Floats,
    law: ObservationLaw,
    threshold: float,
    *,
    streams: int,
    samples: int,
    seed: int,
) -> ReferenceArls:
    """Measure each of ``references`` float64 [samples, n] as a fixed one against healthy ``law``.

    edges: ascending, from observations of no reference sample (``rank_edges``). streams: of each,
    of ``samples`` observations each. One without an alarm counts one at the end: its ARL0 is known from below
    only.
    """
    detector = Rank(edges=tuple(edges.tolist()), counts=(0.0,) * (edges.size + 1), joins=False)
    begin = detector.with_references(np.repeat(references, streams, axis=0))
    raised = alarm_counts(detector, threshold, law, samples=samples, seed=seed, begin=begin)
    arl = streams * samples / np.maximum(raised.reshape(len(references), streams).sum(axis=1), 1)
    return ReferenceArls(
        arl=arl,
        low=float(np.quantile(arl, 0.05)),
        median=float(np.median(arl)),
        harmonic_mean=float(1.0 / np.mean(1.0 / arl)),
    )
