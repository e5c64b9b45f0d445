"""A failing replica that the ejection cap keeps condemns its kernel where the gateway counted nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contracts.telemetry import Source
from controller.judge.kernels.capped import broken_in_rotation
from controller.judge.replicas.late_on_the_way import late_on_the_way
from controller.perceive.on_the_way_pass import BLOCKS
from tests.support.fleets.builders import make_contract, make_layout

LAYOUT = make_layout(kernels=2, slices=2, per_kernel=4)
CONTRACT = make_contract(LAYOUT)
CLAUSES = len(CONTRACT.clause_ids)
FAILED = int(np.flatnonzero(CONTRACT.source == Source.FAILED)[0])
TTFT = int(np.flatnonzero(CONTRACT.source == Source.LATENCY)[0])
ENOUGH = int(CONTRACT.min_samples)


def flags(*replicas: int) -> np.ndarray[Any, Any]:
    """bool [1, R]: true for these replicas."""
    return np.isin(np.arange(8), replicas)[None]


def said(
    fails: dict[int, float],
    condemned: tuple[int, ...],
    away: tuple[int, ...] = (),
    needed: tuple[int, ...] = (),
    counted: tuple[int, int] = (0, 0),
    counted_failed: tuple[int, int] = (0, 0),
) -> list[tuple[int, int]]:
    """(kernel, slice) pairs in alarm; a share ``fails`` of 100 attempts of each replica failed.

    The gateway ``counted`` that many attempts per slice, of which ``counted_failed`` failed.
    """
    latched = np.zeros((1, 8, 2, CLAUSES), dtype=np.bool_)
    latched[:, list(condemned), 0, FAILED] = True
    known = np.zeros((1, 2, 2, CLAUSES, 4))
    known[0, :, :, FAILED, 0] = counted
    known[0, :, :, FAILED, 1:] = np.array(counted_failed)[:, None]
    state: Any = SimpleNamespace(quarantined=flags(*away), needed=flags(*needed), replica_condemned=latched)
    return blamed(state, known, case_of(FAILED, fails, ()), FAILED)


def said_late(
    late: tuple[int, ...],
    away: tuple[int, ...] = (),
    counted_late: tuple[float, float] = (0.0, 0.0),
    overloaded_at_s: float = -np.inf,
) -> list[tuple[int, int]]:
    """The same for replicas all of whose answers are ``late`` on the way.

    ``counted_late``: answers that the gateway counted per slice, in time (below 0) or late.
    """
    known = np.zeros((1, 2, 2, CLAUSES, 4))
    known[0, :, :, TTFT, 0] = np.abs(counted_late)
    known[0, :, :, TTFT, 1:] = np.maximum(counted_late, 0.0)[:, None]
    none = np.zeros((1, 8, 2, CLAUSES), dtype=np.bool_)
    state: Any = SimpleNamespace(quarantined=flags(*away), needed=flags(), replica_condemned=none)
    return blamed(state, known, case_of(TTFT, {}, late, overloaded_at_s), TTFT)


def case_of(
    clause: int, over: dict[int, float], late: tuple[int, ...], overloaded_at_s: float = -np.inf
) -> Any:
    """A share ``over`` of 100 observations of each replica breaks the clause; ``late``: on the way."""
    judged = np.zeros((1, 8, 2, CLAUSES, 4))
    for replica in range(8):
        broken = 100.0 * over.get(replica, 0.0)
        judged[0, replica, 0, clause] = 100.0, broken, broken, broken
    measured = SimpleNamespace(
        way_s=np.where(flags(*late), 9.0, 0.0)[..., None] * np.ones(BLOCKS),
        quarantined=flags(),
        now_s=np.array([100.0]),
        overloaded_at_s=np.full((1, 2), overloaded_at_s),
        kernel_detector={},
        table=np.full((1, 2, 3), 0.3),
    )
    return SimpleNamespace(
        setup=SimpleNamespace(contract=CONTRACT, layout=SimpleNamespace(zones=())),
        estimate=SimpleNamespace(state=measured, late_s=measured.way_s[..., 0]),
        ready=np.ones((1, 8), dtype=np.bool_),
        verdicts=SimpleNamespace(kernels=None, replicas=SimpleNamespace(judged=judged)),
        owner=LAYOUT.replica_kernel,
        kernels=2,
    )


def blamed(state: Any, known: Any, case: Any, clause: int) -> list[tuple[int, int]]:
    """(kernel, slice) pairs in alarm; no clause but ``clause`` is."""
    found = broken_in_rotation(state, known, late_on_the_way(case), case)
    if found is None:
        return []
    assert not np.delete(found.alarm, clause, axis=3).any()
    assert (found.excess[found.alarm] > 0.0).all()
    return [(int(k), int(s)) for _, k, s, _ in np.argwhere(found.alarm)]


def test_it_condemns_its_kernel_on_every_slice_without_counts() -> None:
    """Replica 0 is out, 1 fails half of its requests and stays: a sixth of what the kernel gets fails."""
    assert said({0: 0.5, 1: 0.5}, condemned=(0, 1), away=(0,)) == [(0, 0), (0, 1)]


def test_counts_of_the_gateway_take_precedence() -> None:
    """On a slice with its own counts the replica is ignored, unless these break the limit too."""
    assert said({1: 0.5}, condemned=(1,), counted=(ENOUGH, ENOUGH - 1)) == [(0, 1)]
    enough = (ENOUGH, ENOUGH)
    assert said({1: 0.5}, condemned=(1,), counted=enough, counted_failed=(ENOUGH // 2, 0)) == [(0, 0)]


def test_peers_in_rotation_can_compensate_for_it() -> None:
    """A replica that fails little condemns nothing: all in rotation together keep the clause."""
    limit = float(CONTRACT.rate_limit[FAILED])
    assert said({1: 2.0 * limit}, condemned=(1,)) == []


def test_replicas_that_are_needed_out_or_not_condemned_are_ignored() -> None:
    """Failures alone condemn no kernel, and leaving a needed replica would lose scarce capacity."""
    assert said({1: 0.5}, condemned=(1,), needed=(1,)) == []
    assert said({1: 0.5}, condemned=(1,), away=(1,)) == []
    assert said({1: 0.5}, condemned=()) == []


def test_lateness_on_the_way_needs_late_answers_at_the_gateway_too() -> None:
    """Replica 0 is out and 1 stays: blamed where the gateway counted nothing, or late answers as well."""
    assert said_late((0, 1), away=(0,)) == [(0, 0), (0, 1)]
    assert said_late((0, 1), away=(0,), counted_late=(ENOUGH, -ENOUGH)) == [(0, 0)]
    assert said_late((0,), away=(0,)) == []


def test_an_overloaded_kernel_is_not_blamed_for_lateness() -> None:
    """Ten seconds (one window) after the overload it counts again."""
    assert said_late((0, 1, 2, 3), overloaded_at_s=91.0) == []
    assert said_late((0, 1, 2, 3), overloaded_at_s=90.0) == [(0, 0), (0, 1)]


@given(st.dictionaries(st.integers(0, 7), st.floats(0.0, 1.0)), st.sets(st.integers(0, 7)), st.data())
def test_only_kernels_with_a_condemned_replica_in_rotation_are_blamed(
    fails: dict[int, float], condemned: set[int], data: Any
) -> None:
    """For any failing, quarantined and condemned replicas."""
    away = data.draw(st.sets(st.integers(0, 7)))
    found = said(fails, tuple(condemned), tuple(away))
    assert {k for k, _ in found} <= {replica // 4 for replica in condemned - away}
