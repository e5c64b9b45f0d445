"""A replica that is late on the way is quarantined; if most of its kernel is, the kernel is at fault."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import HISTOGRAM_EDGES_MS, LATENCY_FAMILIES, Source
from controller.judge.replicas.late_on_the_way import LEAST_RATIO, culprits_on_the_way, late_on_the_way
from controller.perceive.excuse_pass import Overload
from controller.perceive.on_the_way_pass import BLOCKS
from tests.support.fleets.builders import Clause, make_contract, make_layout

LAYOUT = make_layout(kernels=2, slices=1, per_kernel=3)
OBJECTIVE_MS = 8000.0


def contract_on(family: str, objective_ms: float) -> CompiledContract:
    """One clause: 95 % of the times of ``family`` are at most the objective."""
    return make_contract(
        LAYOUT,
        (
            Clause(
                name="R-latency",
                family="R",
                source=Source.LATENCY,
                column=LATENCY_FAMILIES.index(family),
                edge=HISTOGRAM_EDGES_MS.index(objective_ms),
                threshold=objective_ms,
                rate_limit=0.05,
                hard=False,
                level=2,
            ),
        ),
    )


CONTRACT = contract_on("latency_ms", OBJECTIVE_MS)


def judged(over: dict[int, float], counted: float | None) -> SimpleNamespace:
    """A hundred answers of each replica, ``over`` of them late; three hundred per kernel at the gateway."""
    replicas, gateway = np.zeros((1, 6, 1, 1, 4)), np.full((1, 2, 1, 1, 4), counted or 0.0)
    for replica in range(6):
        beyond = over.get(replica, 0.0)
        replicas[0, replica, 0, 0] = 100.0, beyond, beyond, beyond
    gateway[..., 0] = 0.0 if counted is None else 300.0
    return SimpleNamespace(
        replicas=SimpleNamespace(judged=replicas),
        kernels=SimpleNamespace(alarms=SimpleNamespace(judged=gateway)),
    )


def found(
    late_s: dict[int, float],
    over: dict[int, float],
    ready: set[int] | None = None,
    zones: tuple[str, ...] = (),
    weighted: bool = True,
    counted: float | None = None,
    excused: bool = False,
    contract: CompiledContract = CONTRACT,
) -> set[int]:
    """Replicas that are taken out: late by ``late_s`` (NaN: unknown), ``over`` of a hundred answers too late.

    Kernel 0 serves only where ``weighted``. counted: late ones among the three hundred answers that the
    gateway counted of each kernel (None: it counted nothing); excused: late answers there are excused.
    """
    state = SimpleNamespace(
        way_s=np.array([[late_s.get(replica, 0.0)] * BLOCKS for replica in range(6)])[None],
        quarantined=np.zeros((1, 6), dtype=np.bool_),
        now_s=np.array([100.0]),
        overloaded_at_s=np.full((1, 2), -np.inf),
        table=np.array([[[0.5, 0.5, 0.0] if weighted else [0.0, 1.0, 0.0]]]),
    )
    case: Any = SimpleNamespace(
        estimate=SimpleNamespace(
            state=state,
            late_s=np.nan_to_num(state.way_s[..., 0]),
            overload=Overload(
                np.full((1, 2), 90.0 if excused else -np.inf), state.now_s, LAYOUT.replica_kernel, 60.0
            ),
        ),
        setup=SimpleNamespace(contract=contract, layout=SimpleNamespace(zones=zones)),
        verdicts=judged(over, counted),
        ready=np.isin(np.arange(6), list(range(6) if ready is None else ready))[None],
        owner=LAYOUT.replica_kernel,
        kernels=2,
    )
    flags = culprits_on_the_way(late_on_the_way(case), case)
    return set() if flags is None else set(np.flatnonzero(flags.any(axis=(0, 2, 3))).tolist())


def test_the_late_replica_goes() -> None:
    """One of three, and one of each kernel."""
    assert found({0: 9.0}, {0: 100.0}) == {0}
    assert found({0: 9.0, 4: 9.0}, {0: 100.0, 4: 100.0}) == {0, 4}


def test_both_a_long_way_and_a_broken_objective_are_needed() -> None:
    """Late answers have other causes, and a long way that breaks no objective is harmless."""
    assert found({}, {0: 100.0}) == set()
    assert found({0: 0.9 * LEAST_RATIO * OBJECTIVE_MS / 1000.0}, {0: 100.0}) == set()
    assert found({0: 7.9}, {0: 4.0}) == set()


def test_a_way_as_long_as_the_objective_needs_no_answers() -> None:
    """No answer can be in time, even while one of our own moves excuses late answers."""
    assert found({0: 8.0}, {}) == {0}


def test_times_that_do_not_start_with_the_request_ignore_the_way() -> None:
    """A way of a second exceeds the limit between two tokens, but makes no token late."""
    assert found({0: 1.0}, {0: 100.0}, contract=contract_on("inter_token_ms", 80.0)) == set()
    assert found({0: 1.0}, {0: 100.0}, contract=contract_on("ttft_ms", 1000.0)) == {0}


def test_no_replica_is_later_than_its_kernel() -> None:
    """The gateway counted three hundred answers of the kernel: five late ones excuse the replica, six do not.

    Five are too few for a twentieth of a hundred; excused answers do not count.
    """
    assert found({0: 9.0}, {0: 100.0}, counted=5.0) == set()
    assert found({0: 9.0}, {0: 100.0}, counted=6.0) == {0}
    assert found({0: 9.0}, {0: 100.0}, counted=5.0, excused=True) == {0}


def test_if_most_replicas_are_late_the_kernel_is_at_fault() -> None:
    """Most of the ready replicas: the gateway's own times judge the kernel."""
    assert found({0: 9.0, 1: 9.0}, {0: 100.0, 1: 100.0}) == set()
    assert found({0: 9.0}, {0: 100.0}, ready={0, 3, 4, 5}) == set()


def test_a_late_zone_includes_its_unknown_replicas() -> None:
    """Replicas of two kernels in one zone are late: 1 is idle there and goes, 2 is known to be in time."""
    zones = ("a", "a", "a", "a", "b", "b")
    late = {0: 9.0, 3: 9.0}
    assert found({**late, 1: np.nan}, {}, zones=zones) == {0, 1, 3}
    assert found({**late, 1: np.nan}, {}, zones=zones, weighted=False) == {0, 3}
    assert found({**late, 1: np.nan, 2: np.nan}, {}, zones=zones) == {0, 1, 2, 3}
    assert found({**late, 5: np.nan}, {}, zones=zones) == {0, 3}
    assert found({**late, 4: 9.0, 1: np.nan}, {}, zones=zones) == {0}


def test_one_kernel_does_not_make_a_late_zone() -> None:
    """Both late replicas belong to one kernel and are most of it: the kernel is at fault, no replica goes."""
    assert found({0: 9.0, 1: 9.0, 3: np.nan}, {}, zones=("a",) * 4 + ("b",) * 2) == set()


REPLICAS = st.sets(st.integers(0, 5))


@given(REPLICAS, REPLICAS, REPLICAS)
def test_only_late_and_ready_replicas_go_and_some_of_each_kernel_stay(
    late: set[int], over: set[int], ready: set[int]
) -> None:
    """For any set of late, over-objective and ready replicas."""
    gone = found(dict.fromkeys(late, 9.0), dict.fromkeys(over, 100.0), ready)
    assert gone <= late & ready, over
    for kernel in (0, 1):
        mine = {replica for replica in ready if replica // 3 == kernel}
        assert not mine or mine - gone
