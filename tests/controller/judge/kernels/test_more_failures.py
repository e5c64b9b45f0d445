"""A kernel is at fault for failures only while it fails more than the other kernels do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from contracts.rng import stream
from contracts.telemetry import FleetTelemetry, ProbeOutcome, Source
from controller.judge.kernels.more_failures_pass import (
    AT_FAULT,
    BURST_TICKS,
    MOST,
    SAME,
    Sides,
    follow_evidence,
)
from controller.judge.replicas.attempts_pass import ODDS, count_attempts, odds_ratio
from policies.registry import make_configuration
from tests.support.fleets.builders import (
    DEFAULT_CLAUSES,
    Clause,
    make_contract,
    make_fleet,
    make_layout,
    with_traffic,
)
from tests.support.fleets.worlds import run, script

LAYOUT = make_layout(kernels=2, slices=2, per_kernel=4)


def evidence(rates: list[list[float]], attempts: list[int], seed: int) -> list[Any]:
    """``more`` [K, K + 1] after each tick; ``rates`` [T][K] of the ``attempts`` [K] fail."""
    rng = stream(seed, "more failures")
    failed = [rng.binomial(attempts, rate) for rate in rates]
    return followed([attempts] * len(rates), failed)


def followed(ended: Any, failed: Any) -> list[Any]:
    """``more`` [K, K + 1] after each tick of ``ended`` attempts, ``failed`` of them; both [T][K]."""
    kernels = len(ended[0])
    more, able = np.zeros((1, kernels, kernels + 1)), np.ones((1, kernels), dtype=np.bool_)
    kept = []
    for tried, bad in zip(ended, failed, strict=True):
        tick = Sides(np.array([tried], dtype=np.float64), np.array([bad], dtype=np.float64), able)
        follow_evidence(more, tuple(tick))
        kept.append(more[0].copy())
    return kept


@given(ended=st.integers(1, 400), other=st.integers(1, 400), share=st.floats(0.001, 1.0))
def test_evidence_of_a_tick_is_fair_whatever_the_common_rate(ended: int, other: int, share: float) -> None:
    """Under one common rate a tick's e-value has mean 1, given the total of failures: scipy's law."""
    drawn = max(1, round(share * (ended + other)))
    failed = np.arange(max(0, drawn - other), min(drawn, ended) + 1)
    chance = stats.hypergeom.pmf(failed, ended + other, drawn, ended)
    values = [odds_ratio(float(ended), float(f), float(other), float(drawn - f)) for f in failed]
    capped = np.array(values) >= MOST * (1.0 - 1e-9)
    assert float(np.sum(chance * values)) <= 1.0 + 1e-6
    if not capped.any():
        np.testing.assert_allclose(np.sum(chance * values), 1.0, rtol=1e-6)


@given(
    ended=st.integers(1, 60), failed=st.integers(0, 60), other=st.integers(1, 60), others=st.integers(0, 60)
)
def test_evidence_of_a_tick_is_fishers_likelihood_ratio(
    ended: int, failed: int, other: int, others: int
) -> None:
    """Against scipy's noncentral hypergeometric law."""
    failed, others = min(failed, ended), min(others, other)
    told = odds_ratio(float(ended), float(failed), float(other), float(others))
    law = (ended + other, failed + others, ended)
    noncentral = stats.nchypergeom_fisher.pmf(failed, *law, ODDS)
    expected = min(noncentral / stats.hypergeom.pmf(failed, *law), MOST)
    np.testing.assert_allclose(told, expected, rtol=1e-6)


def test_failures_common_to_all_kernels_blame_none() -> None:
    """A rate common to all kernels that changes from tick to tick, for 40 hours: as rare as declared."""
    found, ticks, hours = 0, 3600, 40
    for seed in range(hours):
        rates = [[0.01 + 0.3 * (t % 97) / 97.0] * 3 for t in range(ticks)]
        found += int((np.stack(evidence(rates, [24, 10, 2], seed)).max(axis=0) >= AT_FAULT).sum())
    declared = hours * ticks * 3 * 3 / AT_FAULT
    assert found <= declared + 3.0 * np.sqrt(declared)


def test_a_kernel_that_fails_alone_is_at_fault_until_the_others_fail_as_well() -> None:
    """A sixth of 24 attempts a second fails, against ten and two clean ones: in 20 s; cleared in 90 s."""
    for seed in range(20):
        more = evidence([[0.17, 0.0, 0.0]] * 20 + [[0.17, 0.17, 0.17]] * 90, [24, 10, 2], seed)
        assert more[19][0].max() >= AT_FAULT
        assert more[-1][0].max() < SAME


def test_probes_alone_show_that_an_idle_kernel_fails() -> None:
    """Two probes a second, a sixth of which fail, against 34 clean attempts a second: within 60 s."""
    for seed in range(20):
        more = evidence([[0.0, 0.0, 0.17]] * 60, [24, 10, 2], seed)
        assert more[-1][2].max() >= AT_FAULT


def correlated(hours: int, law: str) -> float:
    """Share of time in which one of two kernels is at fault though failures, not independent, share one law.

    spread: every tick draws each kernel's rate, 5 % on average, with a correlation of 0.2 among its attempts;
    requests: a request that fails, fails three times; batches: twice a minute three fifths of a kernel's
    attempts in a tick fail; hangs: the same for three ticks, less often.
    """
    shares, ticks = [], 3600
    for hour in range(hours):
        rng = stream(hour, f"correlated failures, {law}")
        ended = rng.poisson((60, 40), (ticks, 2)) + 1
        if law == "spread":
            failed = rng.binomial(ended, rng.beta(0.05 * 4.0, 0.95 * 4.0, (ticks, 2)))
        elif law == "requests":
            failed = 3 * rng.binomial(ended // 3, 0.03)
        elif law == "batches":
            failed = rng.binomial(ended, 0.6 * (rng.random((ticks, 2)) < 1.0 / 60.0))
        else:
            begins = rng.random((ticks, 2)) < 1.0 / 300.0
            failed = rng.binomial(ended, 0.6 * (begins | np.roll(begins, 1, 0) | np.roll(begins, 2, 0)))
        more = np.stack(followed(ended, failed))
        shares.append(float((more.max(axis=(1, 2)) >= AT_FAULT).mean()))
    return float(np.mean(shares))


@pytest.mark.parametrize(
    ("law", "most"), [("spread", 0.1), ("requests", 0.0125), ("batches", 0.01), ("hangs", 0.05)]
)
def test_correlated_failures_blame_no_kernel_either(law: str, most: float) -> None:
    """As independent trials without decay they would blame a kernel for 25, 2, 85 and 97 % of the time."""
    assert correlated(20, law) <= most


@given(
    ticks=st.lists(
        st.tuples(*[st.tuples(st.integers(0, 300), st.integers(0, 300))] * 2), min_size=1, max_size=3
    )
)
def test_three_ticks_put_no_kernel_at_fault(ticks: list[tuple[tuple[int, int], tuple[int, int]]]) -> None:
    """Whatever fails in them: a burst may last so long."""
    ended = [[max(pair) for pair in tick] for tick in ticks]
    failed = [[min(pair) for pair in tick] for tick in ticks]
    assert np.stack(followed(ended, failed)).max() < AT_FAULT


@given(ended=st.integers(1, 400), other=st.integers(1, 400), before=st.floats(1.0, 1e5))
def test_clean_attempts_offset_the_evidence_of_bursts(ended: int, other: int, before: float) -> None:
    """With one worst-case tick in ``BURST_TICKS`` and all others clean, mean evidence stays the same."""
    after = []
    for failed in (0.0, float(ended)):
        more, able = np.full((1, 2, 3), before), np.ones((1, 2), dtype=np.bool_)
        follow_evidence(more, (np.array([[ended, other]], dtype=np.float64), np.array([[failed, 0.0]]), able))
        after.append(more[0, 0, 1] if failed == 0.0 else more[0, 0, 1] * before / (before + 1.0))
    mean = (1.0 - 1.0 / BURST_TICKS) * after[0] + after[1] / BURST_TICKS
    assert mean <= before * (1.0 + 1e-9)
    assert after[0] < before
    if after[1] < 0.9 * MOST:
        np.testing.assert_allclose(mean, before, rtol=1e-9)


def test_two_kernels_that_hung_together_show_no_difference() -> None:
    """From a simulated fleet that hung for half a minute; one kernel's queue was shorter and gone earlier.

    Both work as before, neither fails more, and two minutes later no evidence is left.
    """
    ended = [(10, 39), (35, 61), (59, 79), (56, 271), (57, 396), (54, 202), (61, 72)]
    failed = [(10, 39), (27, 60), (6, 72), (6, 74), (3, 22), (0, 2), (1, 0)]
    more = np.stack(followed(ended + [(60, 70)] * 120, failed + [(0, 0)] * 120))
    assert more.max() < AT_FAULT
    assert more[-1].max() < 1.0


def failed_probes(seen: FleetTelemetry, replicas: list[int]) -> FleetTelemetry:
    """``seen`` with every other probe of these replicas answered by an error."""
    struck = np.isin(seen.probes.replica, replicas) & (int(seen.now_ms[0] / 1000.0) % 2 == 0)
    outcome = np.where(struck, int(ProbeOutcome.FAILED), seen.probes.outcome).astype(np.int8)
    values = np.where(struck[..., None], np.nan, seen.probes.values)
    valid = seen.probes.valid & ~struck
    return replace(seen, probes=replace(seen.probes, outcome=outcome, values=values, valid=valid))


#: The clause on failures as a rate, and as in the shipped contracts: as a mean.
MEAN_FAILURES = tuple(
    replace(clause, rate_limit=None, threshold=0.02) if clause.source == Source.FAILED else clause
    for clause in DEFAULT_CLAUSES
)


@pytest.mark.parametrize("clauses", [DEFAULT_CLAUSES, MEAN_FAILURES], ids=["rate", "mean"])
@pytest.mark.parametrize("name", ["hysteresis", "sequential"])
@pytest.mark.parametrize("idle_fails", [False, True])
def test_an_idle_kernel_is_judged_by_its_probes(
    name: str, idle_fails: bool, clauses: tuple[Clause, ...]
) -> None:
    """Home fails a third. Traffic goes to the other kernel unless half of its probes fail."""
    rng = stream(3, "idle")

    def edit(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        failed = rng.binomial(10, 0.3 * (now_s > 5.0), (1, 8, 2)).astype(np.int64)
        busy = np.arange(8)[:, None] < 4
        shown = with_traffic(seen, LAYOUT, answered=(10 - failed) * busy, failed=failed * busy)
        return failed_probes(shown, [4, 5, 6, 7]) if idle_fails else shown

    fleet = make_fleet(LAYOUT, capacity_rps=np.full(2, 100.0), contract=make_contract(LAYOUT, clauses))
    result = run(make_configuration(name, fleet), script(LAYOUT, 150, edit))
    assert (result.tables()[-1, :, 1] == (0.0 if idle_fails else 1.0)).all()
    assert bool(result.decisions[-1].judgement.certified[0, 1].all()) is not idle_fails


def test_attempts_are_requests_and_probes_of_serving_replicas() -> None:
    """Per kernel: all that ended, and the failures that count; replicas that do not serve are left out."""
    rng = stream(7, "attempts")
    answered, failed = rng.integers(0, 40, (2, 3, 4))
    replica, outcome = rng.integers(0, 4, (3, 9)), rng.integers(0, 6, (3, 9)).astype(np.int8)
    serving, shares = rng.random((3, 4)) < 0.7, rng.random((3, 2))
    owner = np.array([0, 0, 1, 1])
    ended, bad = np.zeros((2, 3, 2))
    count_attempts(ended, bad, (answered, failed, replica, outcome), serving, shares, owner)
    for b, k in np.ndindex(3, 2):
        mine = serving[b] & (owner == k)
        probed = [ProbeOutcome(int(o)) for r, o in zip(replica[b], outcome[b], strict=True) if mine[r]]
        badly = sum(o in (ProbeOutcome.FAILED, ProbeOutcome.REFUSED) for o in probed)
        requests = np.rint(failed[b, mine].sum() * shares[b, k])
        assert bad[b, k] == requests + badly
        assert ended[b, k] == answered[b, mine].sum() + requests + badly + probed.count(ProbeOutcome.ANSWERED)
