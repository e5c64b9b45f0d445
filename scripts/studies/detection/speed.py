"""CPU time of an update: of many streams, and of a fleet's probes. Compiling is not counted."""

from __future__ import annotations

import statistics
import time

import numpy as np

from contracts.rng import stream
from contracts.telemetry import ProbeSamples
from controller.detect.streams.classical import PageHinkley, WindowMean
from controller.detect.streams.eprocess import Betting, Gaussian
from controller.detect.streams.protocol import StreamDetector
from controller.detect.streams.ranks import rank_detector
from scripts.studies.detection.cases import SEED
from scripts.studies.detection.measured import plan_for, shipped
from scripts.studies.detection.stream_evidence import accumulate_probes, initial_evidence

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
        spent.append((time.process_time() - before) * 1000.0)
    return statistics.median(spent)


def accumulate_ms() -> float:
    """CPU milliseconds per fleet of folding 12 probes into the shipped contract's streams, for 64 fleets."""
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
        spent.append((time.process_time() - before) * 1000.0 / fleets)
    return statistics.median(spent)
