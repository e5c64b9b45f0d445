"""Where replicas of two kernels in one zone are out for failures, the rest of the zone needs no proof."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contracts.telemetry import Source
from controller.judge.failing_zones import failing_with_their_zone
from controller.judge.quarantine import QuarantineReason
from tests.support.builders import make_contract, make_layout

LAYOUT = make_layout(kernels=3, slices=1, per_kernel=2)
CONTRACT = make_contract(LAYOUT)
CLAUSES = len(CONTRACT.clause_ids)
FAILED = int(np.flatnonzero(CONTRACT.source == Source.FAILED)[0])
ZONES = ("a", "b") * 3
REPLICAS = st.sets(st.integers(0, 5))


def found(
    out: tuple[int, ...],
    fails: tuple[int, ...],
    zones: tuple[str, ...] = ZONES,
    reason: QuarantineReason = QuarantineReason.ERRORS,
) -> list[int]:
    """Who goes with its zone; those that ``fails`` failed one of six requests, the others none of six."""
    sums = np.zeros((1, 6, 1, CLAUSES, 4))
    sums[0, :, 0, FAILED, 0] = 6.0
    sums[0, list(fails), 0, FAILED] = 6.0, 1.0, 1.0, 1.0
    away = np.isin(np.arange(6), out)[None]
    state = SimpleNamespace(quarantined=away, quarantine_reason=np.where(away, int(reason), 0))
    case: Any = SimpleNamespace(
        estimate=SimpleNamespace(state=state),
        setup=SimpleNamespace(contract=CONTRACT, layout=SimpleNamespace(zones=zones)),
        verdicts=SimpleNamespace(replicas=SimpleNamespace(judged=sums)),
        ready=np.ones((1, 6), dtype=np.bool_),
        owner=LAYOUT.replica_kernel,
        kernels=3,
    )
    flags = failing_with_their_zone(case)
    return [] if flags is None else [int(r) for r in np.flatnonzero(flags.any(axis=(0, 2, 3)))]


def test_one_failure_is_enough_in_a_zone_that_fails() -> None:
    """Replicas 0 and 2 are of two kernels in zone a: 4 goes for one failed request of six, and 5 does not."""
    assert found((0, 2), fails=(4, 5)) == [4]


def test_who_shows_no_failure_stays() -> None:
    """A zone is no guilt by itself."""
    assert found((0, 2), fails=()) == []


def test_one_kernel_is_no_zone_and_two_zones_are_no_zone() -> None:
    """Replicas of one kernel speak of the kernel; where both zones fail, the zone is not what they share."""
    assert found((0,), fails=(2, 4)) == []
    assert found((0, 2, 3), fails=(4,)) == []


def test_it_needs_declared_zones_and_failures() -> None:
    """Without zones nothing is said, nor of replicas that are out because they are slow."""
    assert found((0, 2), fails=(4,), zones=()) == []
    assert found((0, 2), fails=(4,), reason=QuarantineReason.SLOW) == []


@given(REPLICAS, REPLICAS)
def test_only_failing_replicas_of_the_one_zone_go(out: set[int], fails: set[int]) -> None:
    """Whoever is out and whoever fails."""
    gone = set(found(tuple(out), tuple(fails)))
    assert gone <= fails - out
    if gone:
        assert len({ZONES[replica] for replica in gone | out}) == 1
        assert len({replica // 2 for replica in out}) >= 2
