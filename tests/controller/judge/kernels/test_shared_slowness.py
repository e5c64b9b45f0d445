"""Who is slow is left for a kernel that is faster, and for nobody where all are as slow."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from controller.initial import initial_state
from controller.judge.kernels.shared_slowness import FASTER_RATIO, SLOW_FACTOR, slow_as_others
from controller.perceive.capacity_pass import SCRAPES
from controller.state import ControllerState, altered
from policies.registry import make_configuration
from policies.synthetic_fleet import synthetic_fleet

KERNELS, SLICES, REPLICAS = 3, 2, 6
SETUP = make_configuration("threshold", synthetic_fleet(KERNELS, SLICES, REPLICAS))
NOBODY = np.zeros(KERNELS, dtype=np.bool_)
Case = Any


def fleet(slowness: list[float], silent: tuple[int, ...] = ()) -> tuple[ControllerState, Case]:
    """Kernels that take so many times as long as certified; those ``silent`` have told nobody."""
    state, owner = initial_state(SETUP, 1), SETUP.layout.replica_kernel
    speed = np.zeros_like(state.engine_speed)
    speed[:, ~np.isin(owner, silent), SCRAPES] = 10.0
    state = altered(
        state,
        now_s=np.full(1, 100.0),
        healthy_rps=np.full((1, KERNELS), 10.0),
        replica_rps=10.0 / np.array([slowness]),
        engine_speed=speed,
    )
    ready = np.ones((1, REPLICAS), dtype=np.bool_)
    case = SimpleNamespace(setup=SETUP, kernels=KERNELS, owner=owner, ready=ready)
    return state, case


def shared(slowness: list[float], silent: tuple[int, ...] = ()) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """bool [K], whom clauses on the times of answers say nothing against."""
    found = slow_as_others(*fleet(slowness, silent))
    return NOBODY if found is None else np.asarray(found[0, :, 0].any(axis=1))


def test_where_all_are_as_slow_nobody_is_blamed() -> None:
    """On clauses on times and clocks alone."""
    assert shared([4.0, 4.0, 4.0]).all()
    found = slow_as_others(*fleet([4.0, 4.0, 4.0]))
    assert found is not None
    kinds = {int(one) for one in np.asarray(SETUP.contract.source)[found[0, 0, 0]]}
    assert len(kinds) >= 1
    assert not found[0, 0, 0].all()


@pytest.mark.parametrize("other", [1.0, 3.9 * FASTER_RATIO])
def test_a_faster_kernel_is_a_better_place(other: float) -> None:
    """One is enough, and it is blamed for nothing."""
    assert not shared([4.0, 4.0, other])[:2].any()


def test_one_of_which_nothing_is_heard_is_tried() -> None:
    """It might be faster."""
    assert not shared([4.0, 4.0, 4.0], silent=(2,))[:2].any()


def test_who_computes_as_certified_is_late_by_itself() -> None:
    """By its queue or on the way: as ever."""
    nearly = SLOW_FACTOR - 0.01
    assert not shared([nearly, nearly, nearly]).any()


def test_a_kernel_that_cannot_take_traffic_is_no_better_place() -> None:
    """The only fast one is down."""
    state, case = fleet([4.0, 4.0, 1.0])
    down = altered(state, down_until_at_s=np.array([[-np.inf, -np.inf, 200.0]]))
    found = slow_as_others(down, case)
    assert found is not None
    assert found[0, :2, 0].any(axis=1).all()


def test_a_lone_kernel_and_uncertified_engines_are_judged_as_ever() -> None:
    """There is nothing to compare with."""
    state, case = fleet([4.0, 4.0, 4.0])
    bare = replace(SETUP.fleet, engine=None)
    case.setup = SimpleNamespace(contract=SETUP.contract, fleet=bare, layout=SETUP.layout)
    assert slow_as_others(state, case) is None
