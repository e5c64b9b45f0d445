"""The linear program against enumeration, and laws of the policy around it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.compiled.contract import Level
from controller.ports import Observation, Policy
from policies.program.linear_program import LinearProgramPolicy
from policies.program.model import Costs, TableProgram, solve
from policies.registry import make_policy
from tests.support.fleets.builders import make_fleet, make_layout
from tests.support.fleets.seen import calm, unhealthy

COSTS = Costs()
FLEET = make_fleet(make_layout(kernels=4, slices=2, per_kernel=2))
STEP = 0.1


def lost(table: np.ndarray, problem: TableProgram) -> float:
    """Cost of ``table`` per offered request, written out from the definition; inf: not allowed."""
    kernels, slices = problem.loss.shape
    total, load = 0.0, np.zeros(kernels)
    for s in range(slices):
        rate = problem.offered_rps[s]
        for k in range(kernels):
            if table[s, k] > 1e-9 and not problem.open_[k, s]:
                return float("inf")
            each = problem.loss[k, s] + COSTS.capacity * problem.work[k]
            each += COSTS.away * (k != problem.home[s]) + 1e-6 * k
            total += rate * (table[s, k] * each + COSTS.move * max(0.0, table[s, k] - problem.last[s, k]))
            load[k] += rate * table[s, k]
        total += rate * table[s, kernels] * problem.shed[s]
        if table[s, kernels] > 1e-9 and problem.open_[:, s].any():
            return float("inf")
    beyond = np.maximum(0.0, load / problem.capacity_rps - COSTS.fill_ratio).max()
    total += COSTS.overload * beyond * problem.capacity_rps[problem.open_.any(axis=1)].sum()
    return float(total / problem.offered_rps.sum())


def drawn(seed: int) -> TableProgram:
    """A random problem with two kernels and two slices."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return TableProgram(
        offered_rps=rng.uniform(1.0, 20.0, 2),
        loss=rng.uniform(0.0, 0.2, (2, 2)),
        open_=rng.random((2, 2)) < 0.8,
        capacity_rps=rng.uniform(2.0, 25.0, 2),
        work=rng.uniform(0.2, 1.0, 2),
        last=rng.dirichlet(np.ones(3), 2),
        home=rng.integers(0, 2, 2),
        shed=np.array([1.0, 1.01]),
    )


def rows() -> list[np.ndarray]:
    """Every row of three shares on the grid."""
    ticks = round(1.0 / STEP)
    return [np.array([a, b, ticks - a - b]) / ticks for a in range(ticks + 1) for b in range(ticks + 1 - a)]


@settings(max_examples=12)
@given(st.integers(0, 2**32 - 1))
def test_no_table_of_a_grid_is_cheaper(seed: int) -> None:
    """The optimum is allowed and costs no more than any enumerated table, and some table comes close."""
    problem = drawn(seed)
    best = lost(solve(problem, COSTS), problem)
    enumerated = min(lost(np.stack(pair), problem) for pair in product(rows(), rows()))
    assert best <= enumerated + 1e-7
    assert enumerated <= best + 2.0 * STEP * 1.3


@given(st.integers(0, 2**32 - 1))
def test_rows_are_distributions_and_closed_cells_stay_empty(seed: int) -> None:
    """Shares >= 0, rows sum to 1, closed cells are empty, and a slice with an open cell is not shed."""
    problem = drawn(seed)
    table = solve(problem, COSTS)
    np.testing.assert_allclose(table.sum(axis=1), 1.0, atol=1e-9)
    assert (table >= 0.0).all()
    assert (table[:, :2].T[~problem.open_] == 0.0).all()
    assert (table[problem.open_.any(axis=0), -1] == 0.0).all()


@given(st.integers(0, 2**32 - 1), st.floats(0.92, 3.0))
def test_load_beyond_capacity_is_levelled(seed: int, ratio: float) -> None:
    """With every cell open and shedding expensive, all kernels are overloaded equally."""
    one = drawn(seed)
    rates = one.offered_rps * ratio * one.capacity_rps.sum() / one.offered_rps.sum()
    everything = np.ones((2, 2), dtype=np.bool_)
    problem = replace(one, offered_rps=rates, loss=0.5 * one.loss, open_=everything, shed=np.full(2, 9.0))
    load = rates @ solve(problem, COSTS)[:, :2]
    np.testing.assert_allclose(load / problem.capacity_rps, ratio, rtol=1e-4)


def program(**changes: float) -> LinearProgramPolicy:
    """The registered policy on the test fleet."""
    policy = make_policy("linear-program", FLEET, **changes)
    assert isinstance(policy, LinearProgramPolicy)
    return policy


def run(policy: Policy, *script: Observation) -> list[np.ndarray]:
    """Tables proposed over ``script``."""
    state, tables = policy.initial(len(script[0].now_s)), []
    for seen in script:
        proposal, state = policy.propose(seen, state)
        tables.append(proposal.table)
    return tables


def test_a_healthy_fleet_is_at_home() -> None:
    """With every kernel compliant and equally good, every slice is at home."""
    (table,) = run(program(), calm(FLEET))
    assert table[0, :, 0].tolist() == [1.0, 1.0]


def test_a_noncompliant_cell_gets_nothing() -> None:
    """A home at level guard, condemned or hard-violated is left by that slice at once, and by no other."""
    calm_now = calm(FLEET, 5.0)
    violated = calm_now.hard_violated.copy()
    violated[:, 0, 0] = True
    for seen in (
        unhealthy(calm_now, 0, 0, Level.GUARD),
        unhealthy(calm_now, 0, 0, Level.NORMAL),
        replace(calm_now, hard_violated=violated),
    ):
        table = run(program(), calm(FLEET), seen)[-1]
        assert table[0, 0, 0] == 0.0
        assert table[0, 1, 0] == 1.0


def test_it_returns_after_the_dwell_and_not_before() -> None:
    """Home is closed until it has been compliant for ``dwell_s``."""
    away = unhealthy(calm(FLEET, 1.0), 0, 0, Level.GUARD)
    script = (calm(FLEET), away, calm(FLEET, 30.0), calm(FLEET, 60.9), calm(FLEET, 61.0))
    home = [table[0, 0, 0] for table in run(program(dwell_s=60.0), *script)]
    assert home == [1.0, 0.0, 0.0, 0.0, 1.0]


def test_rows_make_room_later_and_only_for_capacity() -> None:
    """When one slice fails over, the others stay at first; rows that make room later move for capacity."""
    fleet, capacity_rps = replace(FLEET, home=np.array([0, 1])), np.array([[20.0, 16.0, 0.5, 0.5]])
    script = [
        calm(fleet, float(now), offered_rps=np.full((1, 2), 9.0), capacity_rps=capacity_rps)
        for now in range(20)
    ]
    script[1:] = [unhealthy(seen, 0, 0, Level.GUARD) for seen in script[1:]]
    policy = make_policy("linear-program", fleet)
    state, moved = policy.initial(1), []
    for before, seen in zip([None, *script], script, strict=False):
        proposal, state = policy.propose(seen, state)
        if before is not None:
            moved.append((proposal.table[0].copy(), proposal.for_capacity()))
    first, (last, for_capacity) = moved[0][0], moved[-1]
    assert first[0, 0] == 0.0
    assert first[1].tolist() == [0.0, 1.0, 0.0, 0.0, 0.0]
    assert last[1, 0] > 0.0
    assert for_capacity.tolist() == [[True, True]]


def test_a_row_that_makes_room_at_once_moves_only_for_capacity() -> None:
    """If a failover fits only by moving another row, only the failing slice's move has a reason."""
    fleet, capacity_rps = replace(FLEET, home=np.array([0, 1])), np.array([[20.0, 10.0, 10.0, 10.0]])
    busy = calm(fleet, offered_rps=np.array([[14.0, 13.0]]), capacity_rps=capacity_rps)
    late = unhealthy(replace(busy, now_s=np.array([1.0])), 0, 0, Level.GUARD)
    policy = make_policy("linear-program", fleet)
    before, state = policy.propose(replace(busy, offered_rps=np.full((1, 2), 9.0)), policy.initial(1))
    proposal, _ = policy.propose(late, state)
    assert before.table[0, 1, 1] == 1.0
    assert 0.0 < proposal.table[0, 1, 1] < 1.0
    assert proposal.for_capacity().tolist() == [[False, True]]


def test_a_relapse_doubles_the_dwell() -> None:
    """A cell that becomes unhealthy again soon after it was entered stays closed twice as long."""
    script = [calm(FLEET, float(now)) for now in range(0, 400, 10)]
    for now in (10, 100):
        script[now // 10] = unhealthy(script[now // 10], 0, 0, Level.GUARD)
    home = [table[0, 0, 0] for table in run(program(dwell_s=60.0), *script)]
    closed = [10 * index for index, share in enumerate(home) if share == 0.0]
    assert closed == [*range(10, 70, 10), *range(100, 220, 10)]


def test_the_failover_target_with_the_least_certified_loss_is_chosen() -> None:
    """Among otherwise equal failover targets the measured profiles decide."""
    quality = np.full((4, 2), 0.03)
    quality[2] = 0.001
    policy = make_policy("linear-program", replace(FLEET, quality_loss=quality))
    table = run(policy, calm(FLEET), unhealthy(calm(FLEET, 1.0), 0, 0, Level.GUARD))[-1]
    assert table[0, 0].tolist() == [0.0, 0.0, 1.0, 0.0, 0.0]


def test_without_a_target_the_contract_chooses() -> None:
    """Without a compliant kernel the row is shed or goes to the known-good kernel."""
    seen = calm(FLEET)
    for kernel in range(4):
        seen = unhealthy(seen, kernel, 0, Level.FALLBACK)
    for shed, column in ((True, 4), (False, 3)):
        fleet = replace(FLEET, contract=replace(FLEET.contract, shed_when_uncertified=shed))
        assert run(make_policy("linear-program", fleet), seen)[0][0, 0, column] == 1.0


def test_load_that_fits_nowhere_is_left_to_the_shield() -> None:
    """With too little capacity everywhere no load is shed, and all kernels are equally overfull."""
    seen = calm(FLEET, offered_rps=np.full((1, 2), 10.0), capacity_rps=np.full((1, 4), 3.0))
    table = run(make_policy("linear-program", FLEET), seen)[0]
    assert not table[0, :, 4].any()
    np.testing.assert_allclose(10.0 * table[0, :, :4].sum(axis=0), 5.0, atol=1e-5)


def test_a_small_change_of_load_changes_nothing() -> None:
    """Within the tolerance the last table is proposed bit for bit; beyond it load alone may move it."""
    seen = calm(FLEET, offered_rps=np.full((1, 2), 4.0), capacity_rps=np.full((1, 4), 20.0))
    later = replace(seen, now_s=np.array([60.0]), offered_rps=np.full((1, 2), 4.2))
    first, second = run(program(), seen, later)
    assert first.tobytes() == second.tobytes()
    crowded = replace(later, offered_rps=np.full((1, 2), 15.0))
    policy, state = program(), program().initial(1)
    _, state = policy.propose(seen, state)
    proposal, _ = policy.propose(crowded, state)
    assert proposal.for_capacity().tolist() == [[True, True]]
    assert not np.array_equal(proposal.table, first)


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_fleets_of_a_batch_are_independent(seed: int) -> None:
    """Each fleet's tables are, byte for byte, those it gets alone."""
    rng = np.random.Generator(np.random.PCG64(seed))
    script = [
        replace(
            calm(FLEET, float(tick), batch=3),
            level=rng.integers(0, 3, (3, 4, 2)) * (rng.random((3, 4, 2)) < 0.2),
            offered_rps=rng.uniform(0.0, 30.0, (3, 2)),
        )
        for tick in range(0, 80, 20)
    ]
    together = run(program(), *script)
    for fleet in range(3):
        alone = run(program(), *(_one(seen, fleet) for seen in script))
        for table, other in zip(together, alone, strict=True):
            assert table[fleet].tobytes() == other[0].tobytes()


def _one(observation: Observation, fleet: int) -> Observation:
    """Fleet number ``fleet`` of a batch, alone."""
    own = {
        name: value[fleet : fleet + 1]
        for name in type(observation).__dataclass_fields__
        if isinstance(value := getattr(observation, name), np.ndarray)
        and name not in ("role_known_good", "home", "replica_kernel")
    }
    return replace(observation, **own)


def test_the_prior_acts_before_the_alarm() -> None:
    """With evidence_weight, evidence near an alarm moves a slice; without it only the alarm does."""
    ratio = np.zeros((1, 4, 2))
    ratio[0, 0, 0] = 0.9
    quality = np.zeros((4, 2))
    fleet = replace(FLEET, quality_loss=quality)
    seen = replace(calm(fleet, 5.0), evidence_ratio=ratio)
    for evidence_weight, at_home in ((0.0, 1.0), (1.0, 0.0)):
        policy = make_policy("linear-program", fleet, evidence_weight=evidence_weight)
        assert run(policy, calm(fleet), seen)[-1][0, 0, 0] == at_home
