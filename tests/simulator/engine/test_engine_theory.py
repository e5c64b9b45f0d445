"""The fleet engine against queueing theory: means over independent seeds, tolerance from their spread.

With a batch of one and one output token a request is one engine step, whose length is affine in its prompt: a
queue whose service law is that of the prompts.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from simulator.engine.api import FleetEngine
from simulator.engine.requests import RequestArrivals
from simulator.engine.spec import EngineSpec
from tests.support.fleets.engine_cases import make_spec

SEEDS = 24
REQUESTS = 12_000
WARM_UP = 2_000
TOKEN_S = 1e-4
MEAN_TOKENS = 1000.0
SERVICE_S = TOKEN_S * MEAN_TOKENS
Prompts = Callable[[np.random.Generator, int], NDArray[np.int64]]


def single_step_spec(replicas: int) -> EngineSpec:
    """Replicas that serve one request at a time, in one step of ``TOKEN_S`` per prompt token."""
    return make_spec(
        replicas=replicas,
        kernels=1,
        slices=1,
        step_model=np.array([[1e-9, TOKEN_S, 0.0, 0.0]]),
        kv_blocks=np.full(1, 10_000),
        max_batch=1,
        token_budget=100_000,
        queue_limit=1_000_000,
        timeout_s=np.full(1, 1e6),
    )


def geometric(rng: np.random.Generator, n: int) -> NDArray[np.int64]:
    """Token counts whose service time is exponential up to a thousandth of its mean."""
    return rng.geometric(1.0 / MEAN_TOKENS, n)


def constant(rng: np.random.Generator, n: int) -> NDArray[np.int64]:
    """The same service time for all requests."""
    return np.full(n, int(MEAN_TOKENS))


def run(replicas: int, load: float, prompts: Prompts, seed: int, *, choices: int = 2) -> NDArray[np.void]:
    """Records after the warm-up of one run; one choice means random routing."""
    spec, rng = single_step_spec(replicas), np.random.default_rng(seed)
    n = REQUESTS if replicas < 50 else 60_000
    uniforms = rng.random((n, 4))
    if choices == 1:
        uniforms[:, 2] = uniforms[:, 1]
    arrivals = RequestArrivals(
        arrived_at_s=np.cumsum(rng.exponential(SERVICE_S / (load * replicas), n)),
        slice=np.zeros(n, np.int64),
        prompt_tokens=prompts(rng, n),
        output_tokens=np.ones(n, np.int64),
        session=np.full(n, -1),
        prompt=np.zeros(n, np.int64),
        uniforms=uniforms,
    )
    engine = FleetEngine(spec, 1, keep_requests=True)
    engine.feed(0, arrivals)
    engine.advance(float(arrivals.arrived_at_s[-1]) + 1e4)
    return engine.requests(0)[WARM_UP:]


def waits_s(seen: NDArray[np.void]) -> float:
    """Mean time between arrival and start."""
    return float((seen["started_at_s"] - seen["arrived_at_s"]).mean())


def assert_mean(values: list[float], theory: float, *, bias: float = 0.0) -> None:
    """The mean over seeds is the theory's within four of its standard errors (plus a known bias)."""
    sample = np.array(values)
    error = sample.std(ddof=1) / np.sqrt(sample.shape[0])
    assert error < 0.1 * theory
    assert abs(sample.mean() - theory) <= 4.0 * error + bias * theory


def test_one_replica_is_m_m_1() -> None:
    """Exponential service at load 0.7: the mean wait is load / (1 - load) services."""
    load = 0.7
    waits = [waits_s(run(1, load, geometric, seed)) for seed in range(SEEDS)]
    assert_mean(waits, load / (1.0 - load) * SERVICE_S)


def test_one_replica_is_m_d_1() -> None:
    """Constant service at load 0.7: the mean wait is half of M/M/1's (Pollaczek and Khinchine)."""
    load = 0.7
    waits = [waits_s(run(1, load, constant, seed)) for seed in range(SEEDS)]
    assert_mean(waits, 0.5 * load / (1.0 - load) * SERVICE_S)


def test_random_routing_splits_a_poisson_stream() -> None:
    """Four replicas with random routing are four M/M/1 queues."""
    load = 0.6
    waits = [waits_s(run(4, load, geometric, seed, choices=1)) for seed in range(SEEDS)]
    assert_mean(waits, load / (1.0 - load) * SERVICE_S)


def test_two_choices_follow_the_mean_field_law() -> None:
    """At load 0.9 over 100 replicas the mean time in system is sum_k load^(2^k - 2), k >= 1, services.

    Vvedenskaya, Dobrushin and Karpelevich 1996; Mitzenmacher 2001. The law is for infinitely many
    replicas; at 100 the bias is a few percent.
    """
    load = 0.9
    theory = sum(load ** (2.0**k - 2.0) for k in range(1, 12)) * SERVICE_S
    spans = []
    for seed in range(20):
        seen = run(100, load, geometric, seed)[8_000:]
        spans.append(float((seen["finished_at_s"] - seen["arrived_at_s"]).mean()))
    assert_mean(spans, theory, bias=0.03)


def test_little_law() -> None:
    """Mean requests in a replica equal arrival rate times mean time in system, in one run, by counting."""
    seen = run(1, 0.7, geometric, 1)
    start, end = float(seen["arrived_at_s"][0]), float(seen["finished_at_s"].max())
    at = np.linspace(start, end, 200_001)
    arrived = np.searchsorted(np.sort(seen["arrived_at_s"]), at, side="right")
    finished = np.searchsorted(np.sort(seen["finished_at_s"]), at, side="right")
    mean_inside = float((arrived - finished).mean())
    rate = seen.shape[0] / (end - start)
    spans = float((seen["finished_at_s"] - seen["arrived_at_s"]).mean())
    np.testing.assert_allclose(mean_inside, rate * spans, rtol=1e-3)
