"""Gross lateness that lasts raises an alarm within a window; brief or slight lateness does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from contracts.rng import stream
from contracts.telemetry import ProbeSamples, Source
from controller.detect.detector import EvidenceBatch
from controller.detect.sequential.detector import SequentialDetector
from controller.detect.sequential.plan import SequentialSettings, sequential_plan
from controller.detect.sequential.standing import GROSS
from controller.detect.traffic import shipped_traffic
from policies.synthetic_fleet import synthetic_fleet
from tests.support.fleets.builders import no_probes

_MADE = synthetic_fleet(2, 2, 6)
#: Limits of the shipped contracts: five answers in a hundred may be late.
_LIMITS = np.where(_MADE.contract.source == Source.LATENCY, 0.05, _MADE.contract.rate_limit)
FLEET = replace(_MADE, contract=replace(_MADE.contract, rate_limit=_LIMITS))
PLAN = sequential_plan(FLEET, SequentialSettings(traffic=shipped_traffic()))
DETECTOR = SequentialDetector(plan=PLAN)
CONTRACT = PLAN.contract
LATENCIES = np.flatnonzero(CONTRACT.source == Source.LATENCY)
WINDOW_S, FLUSH_S, REQUESTS = CONTRACT.window_s, 5.0, 40.0
MONTH_S, PER_MINUTE = 30.0 * 86400.0, 5.0
LIMIT = float(CONTRACT.rate_limit[LATENCIES].min())


def flush(share: float, pooled: bool) -> EvidenceBatch:
    """One flush: every kernel (or replica) answered ``REQUESTS`` on every slice, ``share`` of them late."""
    _, slices, replicas = FLEET.layout.shape
    cells = (1, len(FLEET.layout.kernels) if pooled else replicas, slices)
    return flush_of(np.full(cells, REQUESTS), np.full(cells, share * REQUESTS), pooled)


def flush_of(requests: np.ndarray, late: np.ndarray, pooled: bool) -> EvidenceBatch:
    """One flush of ``requests`` per unit and slice, of which ``late`` were late; both [B, U, S]."""
    replicas, batch = len(FLEET.layout.replicas), len(requests)
    sums = np.zeros((*requests.shape, len(CONTRACT.clause_ids), 4))
    sums[..., LATENCIES, :] = np.stack([requests, late, late, late], axis=-1)[..., None, :]
    probes: ProbeSamples = no_probes(batch, 1, len(FLEET.layout.probe_metrics))
    return EvidenceBatch(
        pooled=pooled,
        probes=probes,
        received=np.zeros((batch, 1), dtype=np.bool_),
        subject_of=FLEET.layout.replica_kernel if pooled else np.arange(replicas, dtype=np.int64),
        sums=sums,
        news=np.ones(sums.shape[:3], dtype=np.bool_),
        since_s=np.full(batch, FLUSH_S),
        doubted=np.zeros(sums.shape[:-1], dtype=np.bool_),
    )


def alarmed_after_s(shares: list[float], pooled: bool = True) -> float:
    """Seconds from the first flush to the first alarm of a latency clause; inf: none."""
    units = len(FLEET.layout.kernels) if pooled else len(FLEET.layout.replicas)
    state, closed = DETECTOR.initial(1, units, CONTRACT), np.zeros(1, dtype=np.bool_)
    for place, share in enumerate(shares):
        said, state = DETECTOR.update(state, None, closed, CONTRACT, flush(share, pooled))
        if bool(said.alarm[..., LATENCIES].any()):
            return (place + 1) * FLUSH_S
    return np.inf


@pytest.mark.parametrize("share", [1.0, 0.5, 0.3])
def test_gross_lateness_is_found_within_a_window(share: float) -> None:
    """After twenty healthy flushes a kernel is late, fully or in part: an alarm within a window."""
    healthy = [0.0] * 20
    found_s = alarmed_after_s(healthy + [share] * 40) - len(healthy) * FLUSH_S
    assert 0.5 * WINDOW_S <= found_s <= WINDOW_S


def test_lateness_that_passes_raises_no_alarm() -> None:
    """All answers late for half a window in every three: no alarm, however often."""
    late = int(0.5 * WINDOW_S / FLUSH_S)
    assert alarmed_after_s(([1.0] * late + [0.0] * 5 * late) * 4) == np.inf


def test_lateness_that_is_not_gross_is_left_to_evidence() -> None:
    """Twice the limit for five windows raises no alarm of gross lateness."""
    assert alarmed_after_s([2.0 * LIMIT] * int(5 * WINDOW_S / FLUSH_S)) == np.inf
    assert GROSS > 2.0


def test_late_requests_of_rare_traffic_hardly_ever_stand() -> None:
    """A few requests a minute, late at the allowed rate: at most one false alarm in 12 slice-months.

    Chains of three late requests, of which there are hundreds, raise none.
    """
    batch, rng = 96, stream(11, "rare")
    cells = (batch, len(FLEET.layout.kernels), len(CONTRACT.slices))
    flushes = int(MONTH_S / FLUSH_S * 12 / np.prod(cells))
    state, closed = DETECTOR.initial(*cells[:2], CONTRACT), np.zeros(batch, dtype=np.bool_)
    alarms, chains, in_a_row = 0, 0, np.zeros(cells, dtype=np.int64)
    for _ in range(flushes):
        requests = rng.poisson(PER_MINUTE / 60.0 * FLUSH_S, cells).astype(np.float64)
        late = rng.binomial(requests.astype(np.int64), LIMIT).astype(np.float64)
        in_a_row = np.where(late < requests, 0, in_a_row + late.astype(np.int64))
        chains += int(((in_a_row >= 3) & (late > 0)).sum())
        said, state = DETECTOR.update(state, None, closed, CONTRACT, flush_of(requests, late, True))
        raised = np.asarray(said.alarm[..., LATENCIES].any(axis=-1) & said.fresh[..., LATENCIES].any(axis=-1))
        alarms += int(raised.sum())
        state = DETECTOR.forget(state, np.broadcast_to(raised[..., None], said.alarm.shape))
    assert chains > 100
    assert alarms <= 1


@pytest.mark.parametrize(("late", "alarmed"), [(3, False), (20, True)])
def test_a_slice_with_few_requests_is_left_once_enough_of_them_are_late(late: int, alarmed: bool) -> None:
    """One request per flush: three late ones in a row are nothing, twenty are gross lateness."""
    one = np.ones((1, len(FLEET.layout.kernels), len(CONTRACT.slices)))
    state, closed = DETECTOR.initial(1, one.shape[1], CONTRACT), np.zeros(1, dtype=np.bool_)
    found = False
    for place in range(40 + late):
        every = flush_of(one, one * float(place >= 40), True)
        said, state = DETECTOR.update(state, None, closed, CONTRACT, every)
        found |= bool(said.alarm[..., LATENCIES].any())
    assert found == alarmed


def test_replicas_are_compared_with_their_peers_alone() -> None:
    """Where all replicas are equally late, none of them raises an alarm."""
    assert alarmed_after_s([1.0] * 40, pooled=False) == np.inf
