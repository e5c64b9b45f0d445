"""Failures concentrated on some replicas are theirs; one common rate is the kernel's.

Where replicas of two kernels in one zone were seen to fail, other replicas of the zone need no proof, and
those that have hardly served are presumed to fail.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import comb

from contracts.rng import stream
from contracts.telemetry import Source
from controller.judge.replicas.attempts_pass import COLUMNS
from controller.judge.replicas.departures_pass import Alarms
from controller.judge.replicas.whose_failures import (
    failing_members,
    failing_with_zone,
    gathered_by_chance,
    presumed_with_zone,
    proven_departures,
)
from controller.state import QuarantineReason
from tests.support.fleets.builders import make_contract, make_layout

LAYOUT = make_layout(kernels=1, slices=1, per_kernel=6)
CONTRACT = make_contract(LAYOUT)
FAILED = int(np.flatnonzero(CONTRACT.source == Source.FAILED)[0])
CHANCE = 1.0 - CONTRACT.alarm_confidence
DRAWS = 600


def found(count: np.ndarray[Any, Any], over: np.ndarray[Any, Any]) -> list[int]:
    """Replicas blamed in a kernel beyond its limit, given attempts and failures of each."""
    sums = np.zeros((1, count.size, 1, len(CONTRACT.clause_ids), 4))
    sums[0, :, 0, FAILED] = np.stack([count, over, over, over], axis=-1)
    beyond = np.zeros((1, 1, 1, len(CONTRACT.clause_ids)), dtype=np.bool_)
    beyond[..., FAILED] = True
    case: Any = SimpleNamespace(setup=SimpleNamespace(contract=CONTRACT), owner=LAYOUT.replica_kernel)
    flags = failing_members(sums, np.ones((1, count.size), dtype=np.bool_), beyond, case)
    return [int(r) for r in np.flatnonzero(flags.any(axis=(0, 2, 3)))]


@pytest.mark.parametrize("rate", [0.03, 0.1, 0.3])
def test_one_common_rate_is_seldom_divided(rate: float) -> None:
    """Replicas are picked by what they showed, yet chance is bounded: at most 1 in 100 draws, and noise."""
    rng, count = stream(5, "common"), np.full(6, 150)
    divided = sum(bool(found(count, rng.binomial(count, rate))) for _ in range(DRAWS))
    assert divided <= DRAWS * CHANCE + 4.0 * np.sqrt(DRAWS * CHANCE)


def test_members_that_fail_are_told_from_those_that_do_not() -> None:
    """Three of six fail a sixth of 100 attempts: in 19 of 20 draws at least exactly they are found."""
    rng, rates = stream(6, "two rates"), np.array([0.17, 0.0, 0.17, 0.0, 0.17, 0.0])
    right = sum(found(np.full(6, 100), rng.binomial(100, rates)) == [0, 2, 4] for _ in range(200))
    assert right >= 190


def departing(failed: np.ndarray[Any, Any], attempts: float) -> bool:
    """Whether replica 0 goes, given its failures by tick [ticks]; its peers fail none of as many attempts."""
    sums = np.zeros((1, 6, 1, len(CONTRACT.clause_ids), 4))
    sums[0, :, 0, FAILED, 0] = attempts * failed.size + np.where(np.arange(6) == 0, failed.sum(), 0)
    sums[0, 0, 0, FAILED, 1:] = failed.sum(), (failed**2).sum(), failed.sum()
    departs = np.zeros(sums.shape[:-1], dtype=np.bool_)
    departs[0, 0, 0, FAILED] = True
    case: Any = SimpleNamespace(
        setup=SimpleNamespace(contract=CONTRACT),
        owner=LAYOUT.replica_kernel,
        kernels=1,
        ready=np.ones((1, 6), dtype=np.bool_),
        verdicts=SimpleNamespace(replicas=SimpleNamespace(judged=sums)),
    )
    alarms: Any = Alarms(severe=departs, departs=departs, together=np.zeros_like(departs))
    return bool(proven_departures(alarms, np.zeros((1, 6, COLUMNS)), case).departs.any())


@given(st.integers(1, 1000), st.integers(1, 59), st.floats(1.0, 50.0))
def test_one_burst_puts_no_replica_at_fault(size: int, tick: int, attempts: float) -> None:
    """A burst of any size on one of six takes no replica out."""
    failed = np.zeros(60)
    failed[tick] = size
    assert not departing(failed, attempts)


def test_failures_tick_after_tick_are_proven_within_five_of_them() -> None:
    """Of ten requests a second six fail, drawn independently: in each of 200 draws."""
    rng = stream(7, "tick after tick")
    assert all(departing(np.r_[np.zeros(55), rng.binomial(10, 0.6, 5)], 10.0) for _ in range(200))


def test_common_failures_and_silent_peers_blame_the_kernel() -> None:
    """Where all replicas fail, or the others served nothing, the failures are the kernel's."""
    assert found(np.full(6, 200), np.full(6, 40)) == []
    assert found(np.array([200, 200, 0, 0, 0, 0]), np.array([40, 40, 0, 0, 0, 0])) == []


@given(st.lists(st.tuples(st.integers(1, 60), st.floats(0.0, 1.0)), min_size=2, max_size=7), st.data())
def test_the_bound_is_fishers_tail_times_the_choices(drawn: list[tuple[int, float]], data: Any) -> None:
    """Against scipy's hypergeometric law."""
    count = np.array([n for n, _ in drawn], dtype=np.float64)
    over = np.floor(count * [share for _, share in drawn])
    fails = np.zeros(count.size, dtype=np.bool_)
    fails[: data.draw(st.integers(1, count.size - 1))] = True
    sums = np.stack([count, over, over, over], axis=-1)
    tail = stats.hypergeom.sf(over[fails].sum() - 1, count.sum(), over.sum(), count[fails].sum())
    expected = min(tail * comb(fails.size, fails.sum()) * (fails.size - 1), 1.0)
    np.testing.assert_allclose(gathered_by_chance(sums, fails), expected, rtol=1e-6, atol=1e-12)


ZONED = make_layout(kernels=3, slices=1, per_kernel=2)
ZONED_CONTRACT = make_contract(ZONED)
CLAUSES = len(ZONED_CONTRACT.clause_ids)
ZONED_FAILED = int(np.flatnonzero(ZONED_CONTRACT.source == Source.FAILED)[0])
ZONES = ("a", "b") * 3
REPLICAS = st.sets(st.integers(0, 5))


def zoned(
    out: tuple[int, ...],
    sums: np.ndarray[Any, Any],
    zones: tuple[str, ...],
    reason: QuarantineReason,
    needed: tuple[int, ...] = (),
) -> Any:
    """A tick in which the replicas ``out`` are in quarantine, and the ``needed`` ones condemned for failures
    and kept; sums: [6, 4], what each replica showed.
    """
    judged, condemned = np.zeros((1, 6, 1, CLAUSES, 4)), np.zeros((1, 6, 1, CLAUSES), dtype=np.bool_)
    judged[0, :, 0, ZONED_FAILED] = sums
    condemned[0, list(needed), 0, ZONED_FAILED] = True
    away, kept = (np.isin(np.arange(6), some)[None] for some in (out, needed))
    state = SimpleNamespace(
        quarantined=away,
        quarantine_reason=np.where(away, int(reason), 0),
        needed=kept,
        replica_condemned=condemned,
    )
    return SimpleNamespace(
        estimate=SimpleNamespace(state=state),
        setup=SimpleNamespace(contract=ZONED_CONTRACT, layout=SimpleNamespace(zones=zones)),
        verdicts=SimpleNamespace(replicas=SimpleNamespace(judged=judged)),
        ready=np.ones((1, 6), dtype=np.bool_),
        owner=ZONED.replica_kernel,
        kernels=3,
    )


def goes(
    out: tuple[int, ...],
    fails: tuple[int, ...],
    zones: tuple[str, ...] = ZONES,
    reason: QuarantineReason = QuarantineReason.ERRORS,
    needed: tuple[int, ...] = (),
) -> list[int]:
    """Replicas that go with their zone; those in ``fails`` failed one of six requests, the others none."""
    sums = np.zeros((6, 4))
    sums[:, 0] = 6.0
    sums[list(fails)] = 6.0, 1.0, 1.0, 1.0
    flags = failing_with_zone(zoned(out, sums, zones, reason, needed))
    return [] if flags is None else [int(r) for r in np.flatnonzero(flags.any(axis=(0, 2, 3)))]


def test_one_failure_is_enough_in_a_zone_that_fails() -> None:
    """Replicas 0 and 2 are of two kernels in zone a: 4 goes for one failure in six, and 5 does not."""
    assert goes((0, 2), fails=(4, 5)) == [4]


def test_a_replica_without_failures_stays() -> None:
    """Standing in the zone is not enough."""
    assert goes((0, 2), fails=()) == []


def test_one_kernel_or_two_zones_do_not_make_a_failing_zone() -> None:
    """Replicas of one kernel indicate the kernel; if both zones fail, the zone is not the cause."""
    assert goes((0,), fails=(2, 4)) == []
    assert goes((0, 2, 3), fails=(4,)) == []


def test_it_needs_declared_zones_and_failures() -> None:
    """Nothing happens without zones, or where replicas are out because they are slow."""
    assert goes((0, 2), fails=(4,), zones=()) == goes((0, 2), fails=(4,), zones=("a",) * 6) == []
    assert goes((0, 2), fails=(4,), reason=QuarantineReason.SLOW) == []


@given(REPLICAS, REPLICAS)
def test_only_failing_replicas_of_the_one_zone_go(out: set[int], fails: set[int]) -> None:
    """For any replicas that are out and that fail."""
    gone = set(goes(tuple(out), tuple(fails)))
    assert gone <= fails - out
    if gone:
        assert len({ZONES[replica] for replica in gone | out}) == 1
        assert len({replica // 2 for replica in out}) >= 2


@given(REPLICAS, REPLICAS, st.data())
def test_a_zone_fails_whether_or_not_its_replicas_can_be_spared(
    seen: set[int], fails: set[int], data: Any
) -> None:
    """What follows for others is the same if any of the replicas that were seen to fail are kept instead."""
    kept = data.draw(st.sets(st.sampled_from(sorted(seen)))) if seen else set()
    of_zone = set(goes(tuple(seen), tuple(seen | fails)))
    assert set(goes(tuple(seen - kept), tuple(seen | fails), needed=tuple(kept))) - kept == of_zone


def test_a_needed_replica_that_fails_no_more_tells_nothing_of_its_zone() -> None:
    """An alarm outlasts the failures, and so does being needed."""
    assert goes((0,), fails=(2, 4), needed=(2,)) == [2, 4]
    assert goes((0,), fails=(4,), needed=(2,)) == []


ENOUGH = float(ZONED_CONTRACT.min_samples)


def presumed(
    out: tuple[int, ...],
    shown: tuple[int, ...] = (),
    zones: tuple[str, ...] = ZONES,
    reason: QuarantineReason = QuarantineReason.ERRORS,
    leaving: tuple[int, ...] = (),
) -> list[int]:
    """Replicas presumed to fail with their zone; ``shown`` answered enough, the others one too few; those
    ``leaving`` failed all that they had.
    """
    sums = np.zeros((6, 4))
    sums[:, 0] = ENOUGH - 1.0
    sums[list(shown), 0] = ENOUGH
    sums[list(leaving), 1:] = sums[list(leaving), :1]
    flags = presumed_with_zone(zoned(out, sums, zones, reason), np.isin(np.arange(6), leaving)[None])
    return [] if flags is None else np.flatnonzero(flags[0]).tolist()


def test_an_idle_replica_of_a_zone_that_fails_is_presumed_to_fail() -> None:
    """All of zone a; a replica that answered enough is judged by that, in quarantine or not."""
    assert presumed((0, 2)) == [0, 2, 4]
    assert presumed((0, 2), shown=(0, 2, 4)) == []


def test_idle_replicas_are_presumed_to_fail_in_the_tick_in_which_others_leave() -> None:
    """The next tick would find their kernels condemned for them, and the fleet short."""
    assert presumed((), shown=(0, 2), leaving=(0, 2)) == presumed((0,), shown=(0, 2), leaving=(2,)) == [4]
    assert presumed((0,), shown=(0, 2, 3), leaving=(2, 3)) == presumed((), leaving=(0,)) == []


def test_one_kernel_two_zones_or_slow_replicas_presume_nothing() -> None:
    """The same conditions as for replicas that fail a little."""
    assert presumed((0,)) == presumed((0, 2, 3)) == presumed((0, 2), zones=()) == []
    assert presumed((0, 2), zones=("a",) * 6) == []
    assert presumed((0, 2), reason=QuarantineReason.SLOW) == []
    assert presumed((0, 2), reason=QuarantineReason.PRESUMED) == []
