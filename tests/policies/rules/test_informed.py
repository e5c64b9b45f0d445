"""The informed reference acts when it is notified, not before, and on nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.compiled.contract import Level
from controller.ports import Observation, Proposal
from policies.registry import make_configuration
from policies.rules.informed import MOST_LOAD_RATIO, InformedPolicy, Notices, no_notices
from tests.support.fleets.builders import make_fleet, make_layout
from tests.support.fleets.seen import calm, unhealthy

FLEET = make_fleet(make_layout(kernels=3, slices=2, per_kernel=2))


def told(from_at_s: float, until_at_s: float, kernel: int = -1, replica: int = -1) -> Notices:
    """One notice, on the first slice."""
    return Notices(
        from_at_s=np.array([from_at_s]),
        until_at_s=np.array([until_at_s]),
        kernel=np.array([kernel]),
        replica=np.array([replica]),
        slices=np.array([[True, False]]),
    )


def propose(notices: Notices, observation: Observation) -> Proposal:
    """What the configuration's policy proposes first."""
    policy = make_configuration("informed", FLEET, notices=notices).policy
    return policy.propose(observation, policy.initial(len(observation.now_s)))[0]


@given(st.floats(0.0, 200.0), st.floats(50.0, 100.0), st.floats(1.0, 50.0))
def test_it_is_away_exactly_while_a_notice_holds(now_s: float, from_at_s: float, lasts_s: float) -> None:
    """Before the notice and after its end the slice is at home, in between it is not; other slices stay."""
    table = propose(told(from_at_s, from_at_s + lasts_s, kernel=0), calm(FLEET, now_s)).table[0]
    assert bool(table[0, 0] == 0.0) is (from_at_s <= now_s < from_at_s + lasts_s)
    assert table[1, 0] == 1.0


def test_a_single_replica_is_ejected_and_the_table_stays() -> None:
    """A notice of one replica takes it out of rotation while it holds, and moves no slice."""
    notices = told(10.0, 20.0, replica=1)
    for now_s, out in ((9.9, False), (10.0, True), (19.9, True), (20.0, False)):
        proposal = propose(notices, calm(FLEET, now_s))
        assert proposal.ejected[0].tolist() == [False, out, False, False, False, False]
        assert proposal.table[0, :, 0].tolist() == [1.0, 1.0]


def test_it_returns_to_a_certified_home_only() -> None:
    """After the end an uncertified home is not entered."""
    seen = unhealthy(calm(FLEET, 30.0), 0, 0, Level.NORMAL)
    assert propose(told(10.0, 20.0, kernel=0), seen).table[0, 0, 0] == 0.0


def test_without_a_notice_it_equals_its_planner() -> None:
    """Without a notice it proposes what the linear program or, if set, the threshold rule proposes."""
    seen = unhealthy(calm(FLEET, 15.0), 0, 0, Level.GUARD)
    for spec, planner in (("informed", "linear-program"), ("informed:program=0", "threshold")):
        tables = []
        for name in (spec, planner):
            policy = make_configuration(name, FLEET).policy
            tables.append(policy.propose(seen, policy.initial(1))[0].table)
        assert np.array_equal(tables[0], tables[1])


def test_it_does_not_fail_over_to_a_kernel_known_to_be_unhealthy() -> None:
    """With notices of home and known-good, the third kernel takes the slice."""
    one, other = told(10.0, 20.0, kernel=0), told(10.0, 20.0, kernel=2)
    both = Notices(
        **{
            name: np.concatenate([getattr(one, name), getattr(other, name)])
            for name in ("from_at_s", "until_at_s", "kernel", "replica", "slices")
        }
    )
    assert propose(both, calm(FLEET, 15.0)).table[0, 0].tolist() == [0.0, 1.0, 0.0, 0.0]


def test_no_other_policy_gets_the_notices() -> None:
    """Notices change no other policy's proposal."""
    seen = calm(FLEET, 15.0)
    for name in ("threshold", "hysteresis", "sequential", "linear-program"):
        tables = []
        for notices in (None, told(10.0, 20.0, kernel=0)):
            policy = make_configuration(name, FLEET, notices=notices).policy
            tables.append(policy.propose(seen, policy.initial(1))[0].table)
        assert np.array_equal(tables[0], tables[1])


def test_notices_name_a_kernel_or_a_replica() -> None:
    """An entry that names both or neither, or arrays of different length, are refused."""
    for kernel, replica in ((0, 0), (-1, -1)):
        with pytest.raises(ValueError, match="a kernel or a replica"):
            told(0.0, 1.0, kernel, replica)
    with pytest.raises(ValueError, match="expected 1 entries"):
        replace(told(0.0, 1.0, 0), until_at_s=np.zeros(2))


def test_it_plans_with_the_true_capacity_of_kernels() -> None:
    """Notified that home carries 2 requests/s from 10 s on, it moves the rest; no other policy would."""
    quiet = no_notices(len(FLEET.layout.slices))
    true = np.full((2, len(FLEET.layout.kernels)), 1e3)
    true[1, 0] = 2.0 / np.bincount(FLEET.layout.replica_kernel)[0]
    notices = replace(quiet, replica_rps=true, rps_from_at_s=np.array([0.0, 10.0]))
    seen = calm(FLEET, 5.0, offered_rps=np.full((1, len(FLEET.layout.slices)), 8.0))
    assert (propose(notices, seen).table[0, :, 0] == 1.0).all()
    later = propose(notices, replace(seen, now_s=np.array([15.0]))).table
    assert (later[0, :, 0] * 8.0).sum() <= 2.0 + 1e-6


def test_a_tenth_of_the_capacity_is_left_for_bursts() -> None:
    """A home that carries 10 requests/s at an even load does not get 9.9 while other kernels are idle.

    With uneven arrivals that load is answered late, as every policy that learns capacity from answers knows.
    """
    slices = len(FLEET.layout.slices)
    true = np.full((1, len(FLEET.layout.kernels)), 10.0 / np.bincount(FLEET.layout.replica_kernel)[0])
    notices = replace(no_notices(slices), replica_rps=true)
    policy = make_configuration("informed", FLEET, notices=notices).policy
    for offered_rps, stays in ((8.5, True), (9.9, False)):
        state, offered = policy.initial(1), np.full((1, slices), offered_rps / slices)
        for now_s in (15.0, 50.0, 85.0):
            proposal, state = policy.propose(calm(FLEET, now_s, offered_rps=offered), state)
        assert bool((proposal.table[0, :, 0] == 1.0).all()) is stays


def test_capacities_need_one_instant_per_row() -> None:
    """Rows of capacities without as many instants are refused."""
    with pytest.raises(ValueError, match="rows"):
        replace(no_notices(1), replica_rps=np.ones((2, 3)))


@given(st.floats(0.0, 120.0), st.sets(st.integers(0, 5)))
def test_replicas_that_still_answer_are_left_as_far_as_the_others_carry(
    offered_rps: float, unhealthy: set[int]
) -> None:
    """Replicas carry ten a second each: the more is offered, the fewer of the late ones may go."""
    count = len(unhealthy)
    notices = Notices(
        from_at_s=np.zeros(count),
        until_at_s=np.full(count, 100.0),
        kernel=np.full(count, -1),
        replica=np.array(sorted(unhealthy), dtype=np.int64),
        slices=np.ones((count, 2), dtype=np.bool_),
        replica_rps=np.full((1, 3), 10.0),
        answers=np.ones(count, dtype=np.bool_),
    )
    seen = replace(calm(FLEET, 50.0), offered_rps=np.array([[offered_rps, 0.0]]))
    gone = np.flatnonzero(propose(notices, seen).ejected[0])
    assert set(gone.tolist()) <= unhealthy
    rest_rps = 10.0 * (6 - gone.size)
    assert not gone.size or MOST_LOAD_RATIO * rest_rps >= offered_rps
    assert gone.size == count or MOST_LOAD_RATIO * (rest_rps - 10.0) < offered_rps


@pytest.mark.parametrize("offered_rps", [30.0, 45.0])
def test_a_kernel_that_still_answers_is_left_where_the_others_carry(offered_rps: float) -> None:
    """The other four replicas carry forty a second."""
    notices = replace(
        told(10.0, 100.0, kernel=0), replica_rps=np.full((1, 3), 10.0), answers=np.array([True])
    )
    seen = replace(calm(FLEET, 50.0), offered_rps=np.array([[offered_rps / 2.0] * 2]))
    left = bool(propose(notices, seen).table[0, 0, 0] == 0.0)
    assert left is (offered_rps < 40.0)


@pytest.mark.parametrize(("offered_rps", "left"), [(15.0, [0, 1]), (30.0, [1]), (45.0, [])])
def test_no_slice_moves_to_a_kernel_that_answers_badly(offered_rps: float, left: list[int]) -> None:
    """Kernel 0 (a home) and kernel 1 (no slice's home) answer badly; each carries twenty a second."""
    both = Notices(
        from_at_s=np.full(2, 10.0),
        until_at_s=np.full(2, 100.0),
        kernel=np.array([0, 1]),
        replica=np.array([-1, -1]),
        slices=np.array([[True, False]] * 2),
        replica_rps=np.full((1, 3), 10.0),
        answers=np.array([True, True]),
    )
    seen = replace(calm(FLEET, 50.0), home=np.array([0, 2]), offered_rps=np.array([[offered_rps / 2.0] * 2]))
    policy = make_configuration("informed", FLEET, notices=both).policy
    assert isinstance(policy, InformedPolicy)
    cells, _ = policy.left(seen)
    assert np.flatnonzero(cells[0, :, 0]).tolist() == left
