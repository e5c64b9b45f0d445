"""Laws of the shield, for every table and every state of knowledge."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fleet import Stage
from controller.shield.exact import served
from controller.shield.gate import ShieldView, shield
from tests.support.fleets.shield_cases import (
    CLOSE,
    KERNELS,
    KNOWN_GOOD,
    SLICES,
    Case,
    cases,
    random_table,
    with_hard,
)


@given(cases())
def test_rows_sum_to_one(case: Case) -> None:
    """After any change every row is a distribution over kernels and the shed share."""
    safe = case.shielded().table
    assert (safe >= -1e-15).all()
    np.testing.assert_allclose(safe.sum(axis=2), 1.0, atol=1e-9)


@given(cases())
def test_forbidden_cells_are_zero(case: Case) -> None:
    """No weight on hard violations, uncertified kernels, kernels without replicas, or shadows.

    Where no certified kernel lives the contract may serve from the known-good kernel, if that is up.
    """
    safe = case.shielded().table[..., :-1]
    wrong = (safe > 0.0) & ~case.eligible
    by_contract = case.no_target & ~np.array(case.fleet.contract.shed_when_uncertified)
    known_good_up = case.view.ready[:, None, KNOWN_GOOD] > 0
    assert not wrong[..., :KNOWN_GOOD].any()
    assert not (wrong[..., KNOWN_GOOD] & ~(by_contract & known_good_up)).any()


@given(cases())
def test_a_pool_is_never_empty_while_a_certified_kernel_lives(case: Case) -> None:
    """A row with a certified kernel is never shed wholly, however short capacity is."""
    served = case.shielded().table[..., :-1].sum(axis=2)
    assert (served[~case.no_target] >= 0.01 - 1e-9).all()


@given(cases())
def test_where_no_certified_kernel_lives_the_contract_chooses(case: Case) -> None:
    """Such a row is shed, or served by the known-good kernel as far as its capacity allows."""
    safe = case.shielded().table
    rows = safe[case.no_target]
    if case.fleet.contract.shed_when_uncertified:
        assert (rows[:, -1] == 1.0).all()
    np.testing.assert_allclose(rows[:, KNOWN_GOOD] + rows[:, -1], 1.0, atol=1e-9)
    roomy = replace(case, view=replace(case.view, offered_rps=np.zeros_like(case.view.offered_rps)))
    up = case.no_target & (case.view.ready[:, None, KNOWN_GOOD] > 0)
    if not case.fleet.contract.shed_when_uncertified:
        assert (roomy.shielded().table[up][:, KNOWN_GOOD] == 1.0).all()


@given(cases())
def test_no_kernel_carries_more_than_its_limit(case: Case) -> None:
    """Load over the limit is at most the minimum shares that keep pools from being empty."""
    safe = case.shielded().table
    over = case.loads(safe) - case.limit_rps
    assert (over <= case.minimum_share_rps()[:, None] + CLOSE).all()


@settings(max_examples=300, deadline=None)
@given(cases(canaries=False, slow=False))
def test_no_kernel_is_full_while_the_fleet_has_headroom(case: Case) -> None:
    """No kernel exceeds its capacity where a linear program serves everything within comfortable loads.

    None exceeds its comfortable load where the proposal uses every kernel.
    """
    safe, offered_rps = case.shielded().table, case.view.offered_rps
    order, whole = np.arange(SLICES), np.ones((SLICES, KERNELS + 1)) / KERNELS
    for b in np.flatnonzero(~case.no_target.any(axis=1)):
        most_rps = case.comfort_rps[b]
        share = served(whole, case.eligible[b], offered_rps[b], most_rps * (1.0 - CLOSE), order)
        if (share >= 1.0 - CLOSE).all():
            used = ((case.table[b, :, :-1] > 0.0) & case.eligible[b]).any(axis=0).all()
            most_rps = most_rps if used else np.maximum(most_rps, case.capacity_rps[b])
            assert (case.loads(safe)[b] <= most_rps + CLOSE).all()


@settings(max_examples=300)
@given(cases())
def test_shielding_twice_is_shielding_once(case: Case) -> None:
    """The result is allowed, so it comes back bit for bit, and no change is reported."""
    once = case.shielded()
    again = case.shielded(once.table)
    np.testing.assert_array_equal(again.table, once.table)
    assert not again.reason.any()
    assert not again.size.any()


def allowed(case: Case, table: np.ndarray) -> np.ndarray:
    """bool [B]: the rules that need no solver, written independently; stricter than the shield."""
    kernels = table[..., :-1]
    clean = ~((kernels > 0.0) & ~case.eligible).any(axis=(1, 2)) & ~case.no_target.any(axis=1)
    served = (table[..., -1] <= case.limits.max_shed_ratio).all(axis=1)
    fits = (case.loads(table) <= case.comfort_rps).all(axis=1)
    canary = case.eligible & (case.stage == int(Stage.CANARY))
    low, high = case.limits.canary_least_ratio, case.limits.canary_most_ratio
    bounded = (~canary | ((kernels >= low) & (kernels <= high))).all(axis=(1, 2))
    leaving = np.maximum(case.view.last - table, 0.0)
    leaving[..., :-1] *= case.eligible
    leaving[..., -1] = 0.0
    moved = leaving.sum(axis=2)
    slow = np.where(case.view.may_move, moved <= case.limits.max_move_ratio, moved <= 0.0).all(axis=1)
    return np.asarray(clean & served & fits & bounded & slow)


@given(cases())
def test_an_allowed_table_is_untouched(case: Case) -> None:
    """A table that keeps every rule, as written above, comes back bit for bit."""
    for table in (case.table, case.view.last, case.shielded().table):
        fine = allowed(case, table)
        np.testing.assert_array_equal(case.shielded(table).table[fine], table[fine])


@given(cases())
def test_a_result_without_exceptions_keeps_every_rule(case: Case) -> None:
    """Where every row has a target, there is no canary and capacity is ample, the result keeps all rules."""
    plain = replace(
        case,
        fleet=replace(case.fleet, stage=np.full(KERNELS, int(Stage.ACTIVE))),
        view=replace(case.view, offered_rps=np.zeros_like(case.view.offered_rps)),
    )
    safe = plain.shielded().table
    rounded = replace(
        plain, limits=replace(plain.limits, max_move_ratio=0.25 + 1e-9, max_shed_ratio=0.5 + 1e-9)
    )
    moved = np.maximum(plain.view.last - safe, 0.0)[..., :-1] * plain.eligible
    still = replace(rounded.view, may_move=plain.view.may_move | (moved.sum(axis=2) < 1e-9))
    without_target = plain.no_target.any(axis=1)
    assert allowed(replace(rounded, view=still), safe)[~without_target].all()


@given(cases(canaries=False, slow=False), st.integers(0, 2**32))
def test_more_violations_never_allow_what_fewer_forbid(case: Case, seed: int) -> None:
    """A table that a smaller set of hard violations forbids is forbidden by a larger one as well."""
    rng = np.random.Generator(np.random.PCG64(seed))
    more = with_hard(case, case.view.hard_violated | (rng.random(case.view.hard_violated.shape) < 0.3))
    lit = ~(case.no_target | more.no_target)[:, :, None]
    for table in (case.table, more.shielded().table, random_table(rng)):
        forbidden = ((table[..., :-1] > 0.0) & case.view.hard_violated.transpose(0, 2, 1) & lit).any(
            axis=(1, 2)
        )
        returned = (more.shielded(table).table == table).all(axis=(1, 2))
        assert not (forbidden & returned).any()


@given(cases(), st.permutations(range(KERNELS)))
def test_permuting_kernels_permutes_the_table(case: Case, order: list[int]) -> None:
    """The shield depends on the state of kernels, not on their numbers."""
    columns = [*order, KERNELS]
    view, fleet = case.view, case.fleet
    permuted = ShieldView(
        last=view.last[:, :, columns],
        hard_violated=view.hard_violated[:, order],
        certified=view.certified[:, order],
        ready=view.ready[:, order],
        offered_rps=view.offered_rps,
        may_move=view.may_move,
    )
    layout = replace(fleet.layout, known_good=order.index(KNOWN_GOOD))
    other = replace(fleet, layout=layout, stage=case.stage[order], capacity_rps=fleet.capacity_rps[order])
    got = shield(case.table[:, :, columns], permuted, other, case.limits).table
    np.testing.assert_allclose(got, case.shielded().table[:, :, columns], atol=CLOSE)


@given(cases())
def test_a_fleet_is_shielded_alone_as_in_a_batch(case: Case) -> None:
    """Results do not depend on the batch."""
    whole, one = case.shielded(), slice(1, 2)
    given: dict[str, Any] = {name: getattr(case.view, name) for name in ShieldView.__slots__}
    picked: dict[str, Any] = {name: value if value is None else value[one] for name, value in given.items()}
    view = ShieldView(**picked)
    alone = shield(case.table[one], view, case.fleet, case.limits)
    for name in ("table", "reason", "size", "fallback", "voluntary"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(whole, name)[one])


@given(cases(slow=False, canaries=False))
def test_a_hard_move_is_done_at_once(case: Case) -> None:
    """Forbidden weight leaves in the same tick whether or not the row may move."""
    held = replace(case, view=replace(case.view, may_move=np.zeros_like(case.view.may_move)))
    gone = ~case.eligible & ~case.no_target[:, :, None]
    assert (held.shielded().table[..., :-1][gone] == 0.0).all()
