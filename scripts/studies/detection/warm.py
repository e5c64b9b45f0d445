"""Compile what benchmarks and studies use, into the cache, so that no measurement pays for it."""

from __future__ import annotations

import numpy as np

from contracts.telemetry import ProbeSamples
from controller.detect.calibration.calibrate import calibrated_threshold
from controller.detect.calibration.laws import Normal
from controller.detect.sequential.evidence import CLAUSE, HEALTHS, EvidencePlan, blank_cells
from controller.detect.sequential.spread import SPREADS
from controller.detect.streams.classical import Ewma, PageHinkley, WindowMean, gaussian_cusum
from controller.detect.streams.eprocess import Betting, Gaussian
from controller.detect.streams.protocol import StreamDetector, update
from controller.detect.streams.ranks import rank_detector
from scripts.studies.detection.stream_evidence import StreamEvidence, accumulate_into


def warm() -> None:
    """Run every compiled loop on next to nothing."""
    ranks = rank_detector(np.linspace(-1.0, 1.0, 40))
    detectors: tuple[StreamDetector, ...] = (
        Betting(null_mean=1.0),
        Gaussian(),
        ranks,
        WindowMean(length=2),
        Ewma(gain=0.5),
        gaussian_cusum(1.0),
        PageHinkley(),
    )
    for detector in detectors:
        update(detector, detector.initial(2), np.zeros(2), np.ones(2, dtype=np.bool_))
    calibrated_threshold(Gaussian(), Normal(), 20.0, runs=40)
    _warm_evidence()


def _warm_evidence() -> None:
    """No probe, into the evidence of one stream."""
    plan = EvidencePlan(
        clauses=np.zeros(1, dtype=CLAUSE),
        applies=np.ones((1, 1), dtype=np.bool_),
        gain=2.0,
        fair=np.zeros((1, 1, 1, SPREADS)),
    )
    none = np.zeros((1, 0), dtype=np.int64)
    probes = ProbeSamples.of_results(
        replica=none,
        slice=none,
        prompt=none,
        sampled_at_ms=none.astype(np.float64),
        values=np.zeros((1, 0, 1)),
        valid=none.astype(np.bool_),
    )
    state = StreamEvidence(cells=blank_cells(1, 1, 1, 1), health=np.ones((1, 1, 1, 1, HEALTHS)))
    accumulate_into(state, probes, probes.valid, np.zeros(1, dtype=np.int64), plan)
