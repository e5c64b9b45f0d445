"""Gross lateness that stands raises an alarm within a window; what passes, or is little, does not."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.telemetry import ProbeSamples, Source
from controller.detect.detector import EvidenceBatch
from controller.detect.sequential.detector import SequentialDetector
from controller.detect.sequential.plan import SequentialSettings, sequential_plan
from controller.detect.sequential.standing import GROSS
from controller.detect.traffic import shipped_traffic
from policies.synthetic_fleet import synthetic_fleet
from tests.support.builders import no_probes

FLEET = synthetic_fleet(2, 2, 6)
PLAN = sequential_plan(FLEET, SequentialSettings(traffic=shipped_traffic()))
DETECTOR = SequentialDetector(plan=PLAN)
CONTRACT = PLAN.contract
LATENCIES = np.flatnonzero(CONTRACT.source == Source.LATENCY)
WINDOW_S, FLUSH_S, REQUESTS = CONTRACT.window_s, 5.0, 40.0
LIMIT = float(CONTRACT.rate_limit[LATENCIES].min())


def flush(share: float, pooled: bool) -> EvidenceBatch:
    """Every kernel (or replica) answered so many requests on every slice, a share of them late."""
    _, slices, replicas = FLEET.layout.shape
    units = len(FLEET.layout.kernels) if pooled else replicas
    sums = np.zeros((1, units, slices, len(CONTRACT.clause_ids), 4))
    late = share * REQUESTS
    sums[..., LATENCIES, :] = [REQUESTS, late, late, late]
    probes: ProbeSamples = no_probes(1, 1, len(FLEET.layout.probe_metrics))
    return EvidenceBatch(
        pooled=pooled,
        probes=probes,
        received=np.zeros((1, 1), dtype=np.bool_),
        subject_of=FLEET.layout.replica_kernel if pooled else np.arange(replicas, dtype=np.int64),
        sums=sums,
        news=np.ones(sums.shape[:3], dtype=np.bool_),
        since_s=np.array([FLUSH_S]),
        doubted=np.zeros(sums.shape[:-1], dtype=np.bool_),
    )


def alarmed_after_s(shares: list[float], pooled: bool = True) -> float:
    """From the first flush to the first alarm of a latency clause; inf: none."""
    units = len(FLEET.layout.kernels) if pooled else len(FLEET.layout.replicas)
    state, closed = DETECTOR.initial(1, units, CONTRACT), np.zeros(1, dtype=np.bool_)
    for place, share in enumerate(shares):
        said, state = DETECTOR.update(state, None, closed, CONTRACT, flush(share, pooled))
        if bool(said.alarm[..., LATENCIES].any()):
            return (place + 1) * FLUSH_S
    return np.inf


@pytest.mark.parametrize("share", [1.0, 0.5, 0.3])
def test_gross_lateness_is_found_within_a_window(share: float) -> None:
    """After twenty healthy flushes a kernel becomes late, in full or in part: an alarm within a window."""
    healthy = [0.0] * 20
    found_s = alarmed_after_s(healthy + [share] * 40) - len(healthy) * FLUSH_S
    assert 0.5 * WINDOW_S <= found_s <= WINDOW_S


def test_what_passes_does_not_stand() -> None:
    """All answers late for half a window in every three: no alarm, however often."""
    late = int(0.5 * WINDOW_S / FLUSH_S)
    assert alarmed_after_s(([1.0] * late + [0.0] * 5 * late) * 4) == np.inf


def test_what_is_not_gross_is_left_to_evidence() -> None:
    """Twice the limit for five windows stands for no alarm."""
    assert alarmed_after_s([2.0 * LIMIT] * int(5 * WINDOW_S / FLUSH_S)) == np.inf
    assert GROSS > 2.0


def test_replicas_are_compared_with_their_peers_alone() -> None:
    """Where every replica is late alike, none of them raises an alarm for that."""
    assert alarmed_after_s([1.0] * 40, pooled=False) == np.inf
