"""Detectors on streams replayed from measured profiles: a kernel's drift, healthy and then under a fault.

Observations are values of probe prompts drawn at random, in units of the healthy mean. The question is the
certified one ("has the law changed?"), so the yardstick, CUSUM on a declared binning of both laws, applies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from contracts.rng import stream
from controller.detect.calibration.calibrate import calibrated_threshold
from controller.detect.calibration.laws import Empirical
from controller.detect.calibration.simulate import arl_curve
from controller.detect.streams.classical import WindowMean
from controller.detect.streams.eprocess import Betting
from controller.detect.streams.ranks import Rank, rank_edges
from scripts.studies.detection.cases import (
    ARL0,
    SEED,
    ChangeCase,
    Figures,
    TrialDetector,
    measured,
    yardstick,
)
from scripts.studies.detection.measured import measured_changes
from scripts.studies.detection.river import river_figures, river_missing

#: Kernel, slice, and faults near its healthy drift: laws that hardly overlap are found in one or two probes.
REPLAYED = (
    ("bf16", "numbers", ("bit-flips-1000-mantissa-seed0", "requantise-w8", "noise-0.1-one-layer")),
    ("w8a8", "numbers", ("isa-no-vnni",)),
)
_RUNS = 2000


def replayed_figures() -> list[Figures]:
    """Every detector on every replayed stream; empty where no profile is shipped."""
    rows: list[Figures] = []
    for kernel, place, conditions in REPLAYED:
        streams = measured_changes(kernel, place, conditions)
        if not streams:
            continue
        known = [yardstick(change) for change in streams]
        rows += known
        for candidate in _candidates(streams[0]):
            rows += [measured(candidate, change, one) for change, one in zip(streams, known, strict=True)]
        if not river_missing():
            rows += river_figures(streams, known)
    return rows


def _candidates(change: ChangeCase) -> Iterator[TrialDetector]:
    """Betting on the mean, calibrated and guaranteed; ranks against a reference; the best window."""
    law = change.before
    assert isinstance(law, Empirical)
    mean = Betting(null_mean=1.0)
    found = calibrated_threshold(mean, law, ARL0, seed=SEED, runs=_RUNS)
    yield TrialDetector(name="e-SR calibrated", detector=mean, threshold=found.threshold)
    yield TrialDetector(name="e-SR guaranteed", detector=mean, threshold=math.log(ARL0))
    rng = stream(SEED, "replayed_banks")
    edges = rank_edges(np.unique(law.values) + 1e-12)
    ranks = Rank(edges=tuple(edges.tolist()), counts=(0.0,) * (edges.size + 1))
    begin = ranks.with_references(law.source(rng, 500)(_RUNS).reshape(_RUNS, 500))
    curve = arl_curve(ranks, law, streams=_RUNS, samples=int(ARL0 / 2), seed=SEED, begin=begin)
    yield TrialDetector(
        name="rank online calibrated", detector=ranks, threshold=curve.threshold_at(ARL0), begin=begin
    )
    yield TrialDetector(name="rank online guaranteed", detector=ranks, threshold=math.log(ARL0), begin=begin)
    window = WindowMean(length=50)
    found = calibrated_threshold(window, law, ARL0, seed=SEED, runs=_RUNS)
    yield TrialDetector(name="sliding mean 50", detector=window, threshold=found.threshold)
