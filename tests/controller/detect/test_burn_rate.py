"""Burn-rate alerts follow the SRE workbook's definition, recomputed from the whole history."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from contracts.compiled.contract import CompiledContract
from contracts.rng import stream
from contracts.telemetry import FleetTelemetry
from controller.detect.burn_rate import BurnRateDetector
from controller.detect.clauses import plan_clauses
from controller.detect.detector import AlarmState, DetectorState, EvidenceBatch
from policies.registry import make_configuration
from tests.reference.plain_burn import plain_update
from tests.support.fleets.builders import Clause, make_contract, make_fleet, make_layout, no_probes
from tests.support.fleets.worlds import run, script

LAYOUT = make_layout(kernels=1, slices=1, per_kernel=1)
CLAUSES = (
    Clause(threshold=0.1, clip=1.0),
    Clause(name="N-rate", threshold=0.5, rate_limit=0.05, hard=False, level=2),
    Clause(name="N-least", threshold=0.9, sense=-1.0, clip=1.0),
    Clause(name="O-zero", threshold=0.5, rate_limit=0.0),
)
CONTRACT = make_contract(LAYOUT, CLAUSES)
#: Factor, long and short window in seconds for an hour of twelve seconds.
TIERS = ((14.4, 12, 1), (6.0, 72, 6), (1.0, 864, 72))


def arrived(values: np.ndarray, contract: CompiledContract) -> EvidenceBatch:
    """One second in which every clause received the units ``values``."""
    shape = (1, 1, 1, len(contract.clause_ids))
    over = contract.sense * (values[:, None] - contract.threshold) > 0.0
    sums = np.zeros((*shape, 4))
    sums[0, 0, 0, :, 0], sums[0, 0, 0, :, 1], sums[0, 0, 0, :, 3] = (
        len(values),
        values.sum(),
        over.sum(axis=0),
    )
    return EvidenceBatch(
        pooled=False,
        probes=no_probes(1, 0),
        received=np.zeros((1, 0), dtype=np.bool_),
        subject_of=np.zeros(1, dtype=np.int64),
        sums=sums,
        doubted=np.zeros(shape, dtype=np.bool_),
        since_s=np.ones(1),
    )


def feed(detector: BurnRateDetector, seconds: list[np.ndarray]) -> tuple[list[AlarmState], DetectorState]:
    """Alarm states after each second, and the last state of the detector."""
    state, verdicts = detector.initial(1, 1, CONTRACT), []
    for values in seconds:
        seen = arrived(values, CONTRACT)
        verdict, state = detector.update(state, seen.sums, np.array([False]), CONTRACT, seen)
        verdicts.append(verdict)
    return verdicts, state


def burn(values: np.ndarray) -> np.ndarray:
    """Spent over allowed budget of the first three clauses, from the definition."""
    if not len(values):
        return np.zeros(3)
    least = (1.0 - values).mean() / (1.0 - 0.9)
    return np.array([values.mean() / 0.1, (values > 0.5).mean() / 0.05, least])


def expected(seconds: list[np.ndarray], now: int) -> np.ndarray:
    """Alerts after ``now`` seconds: at the last end of each tier's short window, both windows burn."""
    alert = np.zeros(3, dtype=np.bool_)
    for factor, long_s, short_s in TIERS:
        end = now // short_s * short_s
        long, short = (
            np.concatenate(seconds[max(end - width, 0) : end] or [np.zeros(0)]) for width in (long_s, short_s)
        )
        if len(long) >= 10:
            alert |= (burn(long) >= factor) & (burn(short) >= factor)
    return alert


def test_alerts_follow_the_definition() -> None:
    """Long and short window, three tiers, three kinds of clause: alerts recomputed from all units so far."""
    rng = np.random.Generator(np.random.PCG64(4))
    level = np.repeat(
        rng.choice([0.002, 0.01, 0.02, 1.0], 40, p=[0.4, 0.3, 0.2, 0.1]), rng.integers(3, 40, 40)
    )
    seconds = [np.minimum(rng.exponential(scale, rng.integers(0, 4)), 1.0) for scale in level[:900]]
    detector = BurnRateDetector(clauses=plan_clauses(CONTRACT), hour_s=12.0)
    verdicts, _ = feed(detector, seconds)
    wanted = np.array([expected(seconds, now + 1) for now in range(len(seconds))])
    np.testing.assert_array_equal(np.array([v.alarm[0, 0, 0, :3] for v in verdicts]), wanted)
    assert 0.05 < wanted.mean() < 0.95


def test_a_clause_without_tolerance_alerts_until_its_window_is_clean() -> None:
    """One unit over a limit of 0 raises an alert until the short window is clean."""
    detector = BurnRateDetector(clauses=plan_clauses(CONTRACT), hour_s=24.0)
    healthy, unhealthy = np.full(1, 0.1), np.full(1, 0.9)
    verdicts, _ = feed(detector, [healthy] * 4 + [unhealthy] * 2 + [healthy] * 40)
    alarm = [bool(v.alarm[0, 0, 0, 3]) for v in verdicts]
    assert alarm.index(True) == 5
    assert not alarm[-1]


def test_forgetting_empties_the_bins() -> None:
    """Where the detector forgets, its state is the initial one."""
    detector = BurnRateDetector(clauses=plan_clauses(CONTRACT), hour_s=12.0)
    _, state = feed(detector, [np.full(3, 0.9)] * 30)
    fresh = detector.initial(1, 1, CONTRACT)
    after = detector.forget(state, np.ones((1, 1, 1, 4), dtype=np.bool_))
    for name, array in fresh.items():
        np.testing.assert_array_equal(np.asarray(after[name]), np.asarray(array), err_msg=name)
    assert state["alarm"].any()


def test_the_configuration_leaves_a_broken_build_and_returns() -> None:
    """A kernel with a burning budget is left, and used again once its windows burn below 1."""
    fleet = make_fleet(make_layout(kernels=3, slices=2, per_kernel=3))

    def unhealthy(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        if 60.0 < now_s <= 90.0:
            seen.probes.values[np.isin(seen.probes.replica, [0, 1, 2]), 0] = 2.0
        return seen

    tables = run(
        make_configuration("burn-rate:dwell_s=20", fleet), script(fleet.layout, 1200, unhealthy)
    ).tables()
    assert (tables[:60, :, 0] == 1.0).all()
    assert (tables[85, :, 0] == 0.0).all()
    assert (tables[-1, :, 0] == 1.0).all()


@pytest.mark.parametrize("hour_s", [0.0, 30.0])
def test_an_hour_is_the_contracts_window_unless_stated(hour_s: float) -> None:
    """The workbook's windows scale with the contract's window, or with the configuration's own hour."""
    fleet = make_fleet()
    detector = make_configuration(f"burn-rate:hour_s={hour_s:g}", fleet).detector
    assert isinstance(detector, BurnRateDetector)
    assert detector.hour_s == (hour_s or fleet.contract.window_s)


@pytest.mark.parametrize("consume", [False, True])
def test_the_compiled_passes_are_the_plain_definition_to_the_last_bit(consume: bool) -> None:
    """Several fleets, streams of different ages, ten hours: every array equals that of whole-array code."""
    layout = make_layout(kernels=3, slices=2, per_kernel=1)
    contract, rng = make_contract(layout, CLAUSES), stream(3, "burn")
    detector = BurnRateDetector(clauses=plan_clauses(contract), hour_s=12.0)
    state = plain = detector.initial(2, 3, contract)
    for second in range(150):
        seen = _random_second(rng, (2, 3, 2, len(CLAUSES)))
        expected_alarms, plain = plain_update(detector, plain, contract, seen)
        given = {name: array.copy() for name, array in state.items()}
        alarms, after = detector.update(given, None, np.zeros(2, np.bool_), contract, seen, consume=consume)
        assert consume or all(np.array_equal(given[name], state[name]) for name in state)
        if second % 17 == 5:
            spared = rng.random(plain["alarm"].shape) < 0.2
            after, plain = detector.forget(after, spared), detector.forget(plain, spared)
        for name, array in plain.items():
            np.testing.assert_array_equal(after[name], array, err_msg=f"{name} at {second}", strict=True)
        for field in fields(AlarmState):
            mine, plainly = (getattr(one, field.name) for one in (alarms, expected_alarms))
            np.testing.assert_array_equal(mine, plainly, err_msg=f"{field.name} at {second}", strict=True)
        state = after


def _random_second(rng: np.random.Generator, shape: tuple[int, ...]) -> EvidenceBatch:
    """Random sums for every clause stream: most small, some empty."""
    count = rng.poisson(3.0, shape) * (rng.random(shape) < 0.8)
    total, over = count * rng.random(shape), rng.binomial(count, 0.3 * rng.random(shape))
    return EvidenceBatch(
        pooled=False,
        probes=no_probes(2, 0),
        received=np.zeros((2, 0), dtype=np.bool_),
        subject_of=np.arange(shape[1]),
        sums=np.stack([count, total, total * total, over], axis=-1).astype(np.float64),
        doubted=np.zeros(shape, dtype=np.bool_),
        since_s=np.array([1.0, 0.7]),
    )
