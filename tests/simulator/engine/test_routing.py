"""The engine's gateway: weights, kernels without replicas, sessions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.engine.requests import RequestStatus
from simulator.engine.spec import EngineEffect
from tests.support.fleets.engine_cases import Act, make_arrivals, make_spec, run_engine


@pytest.mark.parametrize("weights", [(0.2, 0.3, 0.5, 0.0), (0.7, 0.0, 0.1, 0.2), (0.0, 0.0, 0.0, 1.0)])
def test_weights_are_respected(weights: tuple[float, ...]) -> None:
    """Each kernel's share of 20,000 requests is its weight within four standard errors; 0 gets none."""
    spec = make_spec(queue_limit=100_000)
    n = 20_000
    arrivals = replace(make_arrivals(spec, n, 1e4, 5), output_tokens=np.ones(n, np.int64))
    engine = run_engine(spec, arrivals, [Act(at_s=0.0, call="set_table", args=([weights, weights],))], 10.0)
    seen = engine.requests(0)
    shed = seen["status"] == RequestStatus.SHED
    shares = np.array([*((seen["kernel"] == k).mean() for k in range(3)), shed.mean()])
    wanted = np.array(weights)
    assert (np.abs(shares - wanted) <= 4.0 * np.sqrt(wanted * (1.0 - wanted) / n)).all()


def test_a_kernel_without_replicas_passes_its_share_to_the_others() -> None:
    """With one kernel out of rotation the others share its requests by their weights; no request fails."""
    spec = make_spec()
    rotation = np.array([False, True, True, False, True, True])
    table = np.array([[0.5, 0.125, 0.375, 0.0]] * 2)
    acts = [
        Act(at_s=0.0, call="set_rotation", args=(rotation,)),
        Act(at_s=0.0, call="set_table", args=(table,)),
    ]
    n = 4000
    one = np.ones(n, np.int64)
    arrivals = replace(make_arrivals(spec, n, 200.0, 5), prompt_tokens=one, output_tokens=one)
    seen = run_engine(spec, arrivals, acts, 60.0).requests(0)
    assert set(seen["status"].tolist()) == {int(RequestStatus.ANSWERED)}
    assert abs((seen["kernel"] == 1).mean() - 0.25) < 4.0 * np.sqrt(0.25 * 0.75 / n)


def test_sessions_stay_on_their_replica() -> None:
    """A session's requests to one kernel all go to one replica, until it leaves the rotation."""
    spec = make_spec()
    arrivals = make_arrivals(spec, 400, 30.0, 3, sessions=10)
    seen = run_engine(spec, arrivals, [], 60.0).requests(0)
    for session in range(10):
        for kernel in range(3):
            chosen = (arrivals.session == session) & (seen["kernel"] == kernel)
            assert len(set(seen["replica"][chosen].tolist())) <= 1


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.6])
def test_a_retry_is_independent_of_the_attempt_before(ratio: float) -> None:
    """Where every replica answers a share p with 5xx, two attempts both fail with probability p squared."""
    spec, n = make_spec(max_attempts=2, queue_limit=100_000), 20_000
    acts = [
        Act(at_s=0.0, call="set_effect", args=(replica, EngineEffect(http_error_ratio=ratio)))
        for replica in range(spec.replicas)
    ]
    one = np.ones(n, np.int64)
    arrivals = replace(make_arrivals(spec, n, 1e3, 7), prompt_tokens=one, output_tokens=one)
    seen = run_engine(spec, arrivals, acts, 60.0).requests(0)
    failed, wanted = (seen["status"] == RequestStatus.HTTP_ERROR).mean(), ratio**2
    assert abs(failed - wanted) <= 4.0 * np.sqrt(wanted * (1.0 - wanted) / n)
