"""A failing replica that the ejection cap keeps speaks for its kernel where the gateway counted nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contracts.telemetry import Source
from controller.judge.capped import failures_in_rotation
from tests.support.builders import make_contract, make_layout

LAYOUT = make_layout(kernels=2, slices=2, per_kernel=4)
CONTRACT = make_contract(LAYOUT)
CLAUSES = len(CONTRACT.clause_ids)
FAILED = int(np.flatnonzero(CONTRACT.source == Source.FAILED)[0])
ENOUGH = int(CONTRACT.min_samples)


def flags(*replicas: int) -> np.ndarray[Any, Any]:
    """bool [1, R]."""
    return np.isin(np.arange(8), replicas)[None]


def said(
    fails: dict[int, float],
    condemned: tuple[int, ...],
    away: tuple[int, ...] = (),
    needed: tuple[int, ...] = (),
    counted: tuple[int, int] = (0, 0),
) -> list[tuple[int, int]]:
    """(kernel, slice) that is in alarm; of 100 attempts of each replica the share ``fails`` failed."""
    judged = np.zeros((1, 8, 2, CLAUSES, 4))
    for replica in range(8):
        over = 100.0 * fails.get(replica, 0.0)
        judged[0, replica, 0, FAILED] = 100.0, over, over, over
    known = np.zeros((1, 2, 2, CLAUSES, 4))
    known[0, :, :, FAILED, 0] = counted
    latched = np.zeros((1, 8, 2, CLAUSES), dtype=np.bool_)
    latched[:, list(condemned), 0, FAILED] = True
    state: Any = SimpleNamespace(quarantined=flags(*away), needed=flags(*needed), replica_condemned=latched)
    case: Any = SimpleNamespace(
        setup=SimpleNamespace(contract=CONTRACT),
        ready=np.ones((1, 8), dtype=np.bool_),
        verdicts=SimpleNamespace(replicas=SimpleNamespace(judged=judged)),
        owner=LAYOUT.replica_kernel,
        kernels=2,
    )
    found = failures_in_rotation(state, known, case)
    if found is None:
        return []
    assert not np.delete(found.alarm, FAILED, axis=3).any()
    assert (found.excess[found.alarm] > 0.0).all()
    return [(int(k), int(s)) for _, k, s, _ in np.argwhere(found.alarm)]


def test_it_speaks_on_every_slice_of_which_nothing_is_known() -> None:
    """Replica 0 is out, 1 fails half of its requests and stays: a sixth of what the kernel gets fails."""
    assert said({0: 0.5, 1: 0.5}, condemned=(0, 1), away=(0,)) == [(0, 0), (0, 1)]


def test_what_the_gateway_has_counted_goes_first() -> None:
    """Of a slice with counts of its own the replica says nothing."""
    assert said({1: 0.5}, condemned=(1,), counted=(ENOUGH, ENOUGH - 1)) == [(0, 1)]


def test_the_others_may_make_up_for_it() -> None:
    """A replica that fails little is no reason to leave: those in rotation together keep the clause."""
    limit = float(CONTRACT.rate_limit[FAILED])
    assert said({1: 2.0 * limit}, condemned=(1,)) == []


def test_who_is_needed_or_out_or_not_condemned_says_nothing() -> None:
    """Failures alone condemn nobody, and to leave a needed replica would lose what the fleet is short of."""
    assert said({1: 0.5}, condemned=(1,), needed=(1,)) == []
    assert said({1: 0.5}, condemned=(1,), away=(1,)) == []
    assert said({1: 0.5}, condemned=()) == []


@given(st.dictionaries(st.integers(0, 7), st.floats(0.0, 1.0)), st.sets(st.integers(0, 7)), st.data())
def test_only_kernels_with_a_condemned_replica_in_rotation_are_blamed(
    fails: dict[int, float], condemned: set[int], data: Any
) -> None:
    """Whoever fails, is out or is needed."""
    away = data.draw(st.sets(st.integers(0, 7)))
    found = said(fails, tuple(condemned), tuple(away))
    assert {k for k, _ in found} <= {replica // 4 for replica in condemned - away}
