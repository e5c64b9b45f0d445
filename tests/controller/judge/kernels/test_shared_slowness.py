"""A slow kernel is left for a faster one, and not condemned where all kernels are equally slow."""

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
NO_KERNEL = np.zeros(KERNELS, dtype=np.bool_)
Case = Any


def fleet(slowness: list[float], silent: tuple[int, ...] = ()) -> tuple[ControllerState, Case]:
    """Kernels with steps ``slowness`` times as long as certified; those ``silent`` were never scraped."""
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
    """bool [K]: kernels excused from clauses on answer times."""
    found = slow_as_others(*fleet(slowness, silent))
    return NO_KERNEL if found is None else np.asarray(found[0, :, 0].any(axis=1))


def test_where_all_kernels_are_equally_slow_none_is_blamed() -> None:
    """Only clauses on times and step times are excused."""
    assert shared([4.0, 4.0, 4.0]).all()
    found = slow_as_others(*fleet([4.0, 4.0, 4.0]))
    assert found is not None
    kinds = {int(one) for one in np.asarray(SETUP.contract.source)[found[0, 0, 0]]}
    assert len(kinds) >= 1
    assert not found[0, 0, 0].all()


@pytest.mark.parametrize("other", [1.0, 3.9 * FASTER_RATIO])
def test_a_faster_kernel_is_a_better_target(other: float) -> None:
    """One faster kernel is enough, and it is not blamed."""
    assert not shared([4.0, 4.0, other])[:2].any()


def test_a_kernel_without_scrapes_is_tried() -> None:
    """It might be faster."""
    assert not shared([4.0, 4.0, 4.0], silent=(2,))[:2].any()


def test_a_kernel_at_its_certified_speed_is_not_excused() -> None:
    """It is late because of its queue or the network, and is judged as usual."""
    nearly = SLOW_FACTOR - 0.01
    assert not shared([nearly, nearly, nearly]).any()


def test_a_kernel_that_cannot_take_traffic_is_no_better_target() -> None:
    """The only fast kernel is down."""
    state, case = fleet([4.0, 4.0, 1.0])
    down = altered(state, down_until_at_s=np.array([[-np.inf, -np.inf, 200.0]]))
    found = slow_as_others(down, case)
    assert found is not None
    assert found[0, :2, 0].any(axis=1).all()


def test_a_lone_kernel_and_uncertified_engines_are_judged_as_usual() -> None:
    """Without certified engine times there is nothing to compare."""
    state, case = fleet([4.0, 4.0, 4.0])
    bare = replace(SETUP.fleet, engine=None)
    case.setup = SimpleNamespace(contract=SETUP.contract, fleet=bare, layout=SETUP.layout)
    assert slow_as_others(state, case) is None
