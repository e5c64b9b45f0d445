"""CPU time of an update: of many streams, and of a fleet's probes. Compiling is not counted."""

from __future__ import annotations

import statistics
import time

import numpy as np

from contracts.rng import stream
from contracts.telemetry import ProbeSamples
from contracts.units import MS_PER_S
from controller.detect.calibration.calibrate import calibrated_threshold
from controller.detect.calibration.laws import Normal
from controller.detect.sequential.evidence import CLAUSE, HEALTHS, EvidencePlan, blank_cells
from controller.detect.sequential.spread import SPREADS
from controller.detect.streams.classical import Ewma, PageHinkley, WindowMean, gaussian_cusum
from controller.detect.streams.eprocess import Betting, Gaussian
from controller.detect.streams.protocol import StreamDetector, update
from controller.detect.streams.ranks import rank_detector
from scripts.studies.detection.cases import SEED
from scripts.studies.detection.measured import plan_for, shipped
from scripts.studies.detection.stream_evidence import (
    StreamEvidence,
    accumulate_into,
    accumulate_probes,
    initial_evidence,
)

STREAMS = 10_000


def update_ms() -> dict[str, float]:
    """CPU milliseconds of one update of 10,000 streams, median of 30."""
    rng = stream(SEED, "bench_detect")
    detectors: dict[str, StreamDetector] = {
        "betting": Betting(null_mean=1.0),
        "gaussian": Gaussian(),
        "rank": rank_detector(rng.normal(size=1000)),
        "window-60": WindowMean(length=60),
        "page-hinkley": PageHinkley(),
    }
    return {name: _update_ms(detector, rng) for name, detector in detectors.items()}


def _update_ms(detector: StreamDetector, rng: np.random.Generator) -> float:
    state, present = detector.initial(STREAMS), np.ones(STREAMS, dtype=np.bool_)
    spent = []
    for _ in range(30):
        values = rng.normal(1.0, 0.3, STREAMS)
        before = time.process_time()
        detector.advance(state, values, present)
        spent.append((time.process_time() - before) * MS_PER_S)
    return statistics.median(spent)


def accumulate_ms() -> float:
    """CPU milliseconds per fleet to accumulate 12 probes into the shipped contract's streams, 64 fleets."""
    samples, fleets = shipped("bf16"), 64
    if samples is None:
        return float("nan")
    plan, rng = plan_for(samples, 1.0), stream(SEED, "fold")
    shape = (fleets, 12)
    probes = ProbeSamples.of_results(
        replica=np.broadcast_to(np.arange(12), shape).copy(),
        slice=rng.integers(0, 5, shape),
        prompt=np.zeros(shape, dtype=np.int64),
        sampled_at_ms=np.zeros(shape),
        values=samples.values[0, rng.integers(0, samples.prompt_ids.size, shape), 0],
        valid=np.ones(shape, dtype=np.bool_),
    )
    state, spent = initial_evidence(fleets, 12, plan), []
    for _ in range(30):
        before = time.process_time()
        accumulate_probes(state, probes, probes.valid, np.arange(12, dtype=np.int64), plan)
        spent.append((time.process_time() - before) * MS_PER_S / fleets)
    return statistics.median(spent)


def warm() -> None:
    """Run every compiled loop on minimal input."""
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
    """Accumulate no probe into the evidence of one stream."""
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
