"""From telemetry to window sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.telemetry import FleetTelemetry, GatewayCounts, Source
from controller.cells import pool
from controller.detect.sums import COUNT, OVER, SQUARES, TOTAL
from controller.initial import initial_state
from controller.options import ControllerSetup
from controller.perceive.estimate import accumulate
from policies.registry import make_configuration
from tests.support.fleets.builders import (
    Clause,
    make_contract,
    make_fleet,
    make_layout,
    quiet_telemetry,
    with_probes,
    with_traffic,
)

LAYOUT = make_layout(kernels=2, slices=2, per_kernel=2)
CLAUSES = (
    Clause(name="mean", threshold=0.3, clip=0.5),
    Clause(name="rate", column=1, threshold=0.3, rate_limit=0.1, slices=(1,)),
    Clause(name="ttft", source=Source.LATENCY, column=1, edge=8, rate_limit=0.05),
    Clause(name="failed", source=Source.FAILED, threshold=0.02),
    Clause(name="print", source=Source.FINGERPRINT, threshold=0.0, rate_limit=0.0),
    Clause(name="kv", source=Source.KV_USED, threshold=0.9, rate_limit=0.05),
)


def setup() -> ControllerSetup:
    """A controller for the clauses above."""
    return make_configuration("fixed", make_fleet(LAYOUT, contract=make_contract(LAYOUT, CLAUSES)))


def random_telemetry(seed: int, now_s: float = 1.0, batch: int = 1) -> FleetTelemetry:
    """Telemetry with random values, some missing."""
    rng = np.random.Generator(np.random.PCG64(seed))
    values = rng.uniform(0.0, 1.0, (batch, 4, 2, 2))
    values[rng.random(values.shape) < 0.2] = np.nan
    seen = with_probes(quiet_telemetry(LAYOUT, now_s, batch), LAYOUT, values)
    gateway = seen.gateway
    return replace(
        seen,
        answered=rng.integers(0, 5, seen.answered.shape),
        failed=rng.integers(0, 3, seen.answered.shape),
        latency_le=np.cumsum(rng.integers(0, 3, seen.latency_le.shape), axis=-1),
        gateway=GatewayCounts(
            answered=rng.integers(0, 5, gateway.answered.shape),
            failed=rng.integers(0, 3, gateway.answered.shape),
            timed_out=np.zeros(gateway.answered.shape, dtype=np.int64),
            latency_le=np.cumsum(rng.integers(0, 3, gateway.latency_le.shape), axis=-1),
        ),
        fingerprint_match=rng.choice([0.0, 1.0, np.nan], seen.fingerprint_match.shape),
        kv_used_ratio=rng.uniform(0.0, 1.0, seen.kv_used_ratio.shape),
    )


@given(st.integers(0, 10_000))
def test_sums_follow_their_definition(seed: int) -> None:
    """Count, total, squares and exceedances of every cell equal a plain recomputation.

    A replica's traffic covers all its requests and is stored on one slice. The squares of failures are taken
    per tick.
    """
    seen = random_telemetry(seed)
    window = accumulate(initial_state(setup(), 1), seen, setup()).state.window[0]
    for r in range(4):
        for s in range(2):
            probes = (seen.probes.replica[0] == r) & (seen.probes.slice[0] == s)
            first, second = (seen.probes.values[0, probes, m] for m in (0, 1))
            _same(window[r, s, 0], np.minimum(first, 0.5), first > 0.3, first)
            _same(window[r, s, 1], second, second > 0.3, second if s == 1 else second[:0])
            total, under = (int(seen.latency_le[0, r, 1, place]) * (s == 0) for place in (-1, 8))
            assert window[r, s, 2].tolist() == [total, *[total - under] * 3]
            failed = int(seen.failed[0, r]) * (s == 0)
            ended = int(seen.answered[0, r]) * (s == 0) + failed
            assert window[r, s, 3].tolist() == [ended, failed, failed**2, failed]
            match = seen.fingerprint_match[0, r]
            assert window[r, s, 4, COUNT] == (0.0 if np.isnan(match) else 1.0)
            assert window[r, s, 4, OVER] == (1.0 if match == 0.0 else 0.0)
            assert window[r, s, 5, OVER] == float(seen.kv_used_ratio[0, r] > 0.9)


@given(st.integers(0, 10_000))
def test_a_kernels_traffic_is_what_the_gateway_counts(seed: int) -> None:
    """Per slice for traffic; without a window detector everything else is pooled over the replicas."""
    seen = random_telemetry(seed)
    for name in ("fixed", "sequential"):
        config = replace(setup(), detector=make_configuration(name, setup().fleet).detector)
        found = accumulate(initial_state(config, 1), seen, config)
        window, gateway = found.state.kernel_window[0], seen.gateway
        for k in range(2):
            for s in range(2):
                total, under = (int(gateway.latency_le[0, s, k, 1, place]) for place in (-1, 8))
                assert window[k, s, 2].tolist() == [total, *[total - under] * 3]
                failed = int(gateway.failed[0, s, k])
                ended = int(gateway.answered[0, s, k]) + failed
                assert window[k, s, 3].tolist() == [ended, failed, failed**2, failed]
        traffic = [2, 3]
        others = [0, 1, 4, 5]
        assert (window[:, :, others] == 0.0).all()
        if config.detector.by_observation:
            pooled = pool(found.sums, np.ones((1, 4), dtype=np.bool_), LAYOUT.replica_kernel, 2)
            np.testing.assert_array_equal(found.kernel_sums[0][:, :, traffic], window[:, :, traffic])
            np.testing.assert_array_equal(found.kernel_sums[:, :, :, others], pooled[:, :, :, others])
            assert (found.kernel_news | ~(found.kernel_sums[..., COUNT] > 0.0).any(axis=3)).all()


@given(st.integers(0, 10_000), st.lists(st.booleans(), min_size=4, max_size=4))
def test_failures_of_quarantined_replicas_do_not_count_for_the_kernel(seed: int, away: list[bool]) -> None:
    """Over all slices, a kernel's failures and attempts are those of its replicas in rotation."""
    rng, config, away_ = np.random.Generator(np.random.PCG64(seed)), setup(), np.array(away)
    shape = (1, 4, 2)
    seen = with_traffic(
        quiet_telemetry(LAYOUT, 1.0),
        LAYOUT,
        answered=rng.integers(0, 5, shape),
        failed=rng.integers(0, 5, shape),
    )
    state = replace(initial_state(config, 1), quarantined=away_[None])
    window = accumulate(state, seen, config).state.kernel_window[0]
    for kernel in range(2):
        mine = (LAYOUT.replica_kernel == kernel) & ~away_
        failed = float(seen.failed[0, mine].sum())
        ended = failed + float(seen.answered[0, mine].sum())
        np.testing.assert_allclose(window[kernel, :, 3, OVER].sum(), failed, atol=1e-9)
        np.testing.assert_allclose(window[kernel, :, 3, COUNT].sum(), ended, atol=1e-9)


@pytest.mark.parametrize("overloaded", [False, True])
def test_an_overloaded_kernel_is_not_blamed_for_timeouts(overloaded: bool) -> None:
    """Of its failures only those before the timeout count; of any other kernel all do."""
    config = setup()
    answered, failed = np.full((1, 4, 2), 6), np.full((1, 4, 2), 2)
    seen = with_traffic(quiet_telemetry(LAYOUT, 1.0), LAYOUT, answered=answered, failed=failed)
    late = np.zeros_like(seen.gateway.failed)
    late[0, :, 0] = 3  # of the four that failed
    seen = replace(seen, gateway=replace(seen.gateway, timed_out=late))
    state = initial_state(config, 1)
    if overloaded:
        state = replace(state, overloaded_at_s=np.full((1, 2), 1.0))
    found = accumulate(state, seen, config).state
    counted = found.kernel_window[0, :, 0, 3, OVER]
    assert counted.tolist() == ([1.0, 4.0] if overloaded else [4.0, 4.0])
    replicas = found.window[0, :, 0, 3, OVER]
    assert replicas.tolist() == ([1.0, 1.0, 4.0, 4.0] if overloaded else [4.0, 4.0, 4.0, 4.0])


@pytest.mark.parametrize("overloaded", [False, True])
@pytest.mark.parametrize("refused", [0, 1])
def test_overload_alone_ejects_no_replica(overloaded: bool, refused: int) -> None:
    """All timed out and overloaded: none fails. One refused at once, or no overload: they fail."""
    config = setup()
    failed = np.full((1, 4, 2), 2)
    failed[0, 2:] = 0  # the other kernel answers
    seen = with_traffic(quiet_telemetry(LAYOUT, 1.0), LAYOUT, answered=np.full((1, 4, 2), 6), failed=failed)
    late = seen.gateway.failed.copy()
    late[0, 0, 0] -= refused
    seen = replace(seen, gateway=replace(seen.gateway, timed_out=late))
    state = initial_state(config, 1)
    if overloaded:
        state = replace(state, overloaded_at_s=np.full((1, 2), 1.0))
    excused = overloaded and not refused
    assert accumulate(state, seen, config).failing_now[0].tolist() == [not excused, not excused, False, False]


def _same(sums: np.ndarray, values: np.ndarray, over: np.ndarray, given_values: np.ndarray) -> None:
    known = ~np.isnan(values[: len(given_values)])
    values, over = values[: len(given_values)][known], over[: len(given_values)][known]
    np.testing.assert_allclose(
        [sums[COUNT], sums[TOTAL], sums[SQUARES], sums[OVER]],
        [len(values), values.sum(), (values * values).sum(), over.sum()],
        atol=1e-12,
    )


def test_an_old_scrape_adds_nothing() -> None:
    """Gauges from the same scrape instant are not new evidence."""
    config = setup()
    seen = random_telemetry(1)
    first = accumulate(initial_state(config, 1), seen, config)
    again = accumulate(first.state, replace(seen, now_ms=seen.now_ms + 1000.0), config)
    assert not again.fresh.any()
    np.testing.assert_array_equal(again.state.window[..., 4:, :], first.state.window[..., 4:, :])


def test_an_infinite_value_leaves_the_sums_finite() -> None:
    """An infinite probe value counts as very large, so that it can be judged."""
    config = setup()
    seen = with_probes(quiet_telemetry(LAYOUT, 1.0), LAYOUT, np.array([np.inf, np.inf]))
    window = accumulate(initial_state(config, 1), seen, config).state.window
    assert np.isfinite(window).all()
    assert (window[0, :, :, 0, OVER] == 1.0).all()


@given(st.integers(0, 10_000), st.lists(st.booleans(), min_size=4, max_size=4))
def test_a_kernel_is_the_sum_of_its_replicas_in_rotation(seed: int, included: list[bool]) -> None:
    """Pooled sums add the included replicas of each kernel and nothing else."""
    sums = np.random.Generator(np.random.PCG64(seed)).integers(0, 9, (1, 4, 2, 3, 4)).astype(float)
    mask = np.array([included])
    pooled = pool(sums, mask, LAYOUT.replica_kernel, 2)
    for kernel in range(2):
        mine = mask[0] & (LAYOUT.replica_kernel == kernel)
        np.testing.assert_array_equal(pooled[0, kernel], sums[0, mine].sum(axis=0))


def test_a_fleet_is_stale_only_after_silence() -> None:
    """A fleet is stale when neither scrape nor probe arrived for longer than the contract allows."""
    config = setup()
    seen = quiet_telemetry(LAYOUT, 1.0)
    state = accumulate(initial_state(config, 1), seen, config).state
    limit_ms = config.contract.stale_after_s * 1000.0
    for silent_ms, stale in ((limit_ms, False), (limit_ms + 1.0, True)):
        later = replace(seen, now_ms=seen.now_ms + silent_ms)
        assert bool(accumulate(state, later, config).stale[0]) is stale
    probed = with_probes(replace(seen, now_ms=seen.now_ms + limit_ms + 1.0), LAYOUT, np.array([0.1, 0.1]))
    assert not accumulate(state, probed, config).stale[0]


def test_samples_that_are_old_on_arrival_are_no_evidence() -> None:
    """Probes and scrapes older than ``stale_after_s`` add nothing and do not end a silence."""
    config = setup()
    first = accumulate(initial_state(config, 1), quiet_telemetry(LAYOUT, 1.0), config).state
    old = with_probes(quiet_telemetry(LAYOUT, 50.0), LAYOUT, np.array([0.9, 0.9]))
    old.probes.sampled_at_ms[:] = 20_000.0
    old = replace(old, scraped_at_ms=np.full_like(old.scraped_at_ms, 30_000.0))
    after = accumulate(first, old, config)
    assert after.stale[0]
    without_failures = [0, 1, 2, 4, 5]
    np.testing.assert_array_equal(
        after.state.window[:, :, :, without_failures], first.window[:, :, :, without_failures]
    )
