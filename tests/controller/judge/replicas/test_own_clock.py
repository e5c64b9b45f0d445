"""Whether slow steps are the fault of the replica, its zone or its kernel."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from contracts.rng import stream
from controller.judge.replicas.own_clock import OwnClocks, slow_zones
from controller.options import ControllerOptions
from controller.state import QuarantineReason
from policies.registry import make_configuration
from tests.support.fleets.builders import make_layout
from tests.support.fleets.clocks import clocked_fleet, clocks
from tests.support.fleets.worlds import Run, run, script

LAYOUT = make_layout(kernels=2, slices=2, per_kernel=4)
QUICK = ControllerOptions(readmit_after_s=20.0, readmit_every_s=5.0)
IDLE = float("nan")
#: Three replicas of the first kernel and two of the second are in the old zone.
ZONED = replace(LAYOUT, zones=("new", "old", "old", "old", "new", "new", "old", "old"))


def driven(
    name: str, factors: list[float], *, layout: Any = LAYOUT, ticks: int = 60, cap_ratio: float = 0.5
) -> Run:
    """From second 5 on each replica's steps take ``factors`` times as long as certified."""
    setup = make_configuration(name, clocked_fleet(layout, cap_ratio), QUICK)
    return run(setup, script(layout, ticks, clocks(factors, 5.0)))


def condemned(result: Run) -> list[bool]:
    """Whether each kernel was condemned at any tick."""
    ever = np.any([~one.judgement.certified[0].all(axis=-1) for one in result.decisions], axis=0)
    return [bool(one) for one in ever]


@pytest.mark.parametrize("name", ["fixed", "sequential"])
def test_slow_half_of_a_kernel_goes_and_the_kernel_stays(name: str) -> None:
    """Two of four replicas are slow, and so is their mean; both depart, and no tick blames the build."""
    result = driven(name, [1.0, 1.0, 4.0, 4.0, 1.0, 1.0, 1.0, 1.0])
    assert np.flatnonzero(result.quarantined()[-1]).tolist() == [2, 3]
    assert condemned(result) == [False, False]


@pytest.mark.parametrize("name", ["fixed", "sequential"])
def test_slow_build_is_left_and_no_replica_departs(name: str) -> None:
    """All replicas of a kernel slow: the kernel is condemned on every slice, and no replica is taken out."""
    result = driven(name, [4.0] * 4 + [1.0] * 4)
    assert not result.quarantined().any()
    assert condemned(result) == [True, False]
    assert not result.decisions[-1].judgement.certified[0, 0].any()


def test_slow_only_replica_condemns_its_kernel() -> None:
    """The only replica of a kernel cannot be taken out, so the kernel is condemned."""
    alone = make_layout(kernels=2, slices=1, per_kernel=1)
    result = driven("sequential", [4.0, 1.0], layout=alone)
    assert not result.quarantined().any()
    assert condemned(result) == [True, False]


def test_kernel_is_condemned_no_longer_than_its_replicas_are_slow() -> None:
    """A build that is fast again returns by the tests of its replicas."""
    setup = make_configuration("sequential", clocked_fleet(LAYOUT), QUICK)
    result = run(setup, script(LAYOUT, 400, clocks([4.0] * 4 + [1.0] * 4, 5.0, 60.0)))
    assert condemned(result) == [True, False]
    assert result.decisions[-1].judgement.certified.all()


def test_slow_zone_loses_its_replicas_and_its_kernels_stay() -> None:
    """Three of four replicas of a kernel are slow, but so is all of their zone: the build is not at fault."""
    slow = [1.0, 4.0, 4.0, 4.0, 1.0, 1.0, 4.0, IDLE]
    result = driven("sequential", slow, layout=ZONED, cap_ratio=0.8)
    assert np.flatnonzero(result.quarantined()[-1]).tolist() == [1, 2, 3, 6, 7]
    assert condemned(result) == [False, False]
    reasons = result.decisions[-1].quarantine_reason[0]
    assert reasons[[1, 2, 3, 6]].tolist() == [QuarantineReason.SLOW] * 4
    assert reasons[7] == QuarantineReason.ZONE
    away = result.quarantined()[:, 7]
    assert away[np.flatnonzero(away)[0] :].all()


def test_without_zones_the_kernel_is_at_fault() -> None:
    """Where the pool declares no zones, a kernel with mostly slow replicas has a slow build."""
    slow = [1.0, 4.0, 4.0, 4.0, 1.0, 1.0, 4.0, IDLE]
    result = driven("sequential", slow, cap_ratio=0.8)
    assert condemned(result) == [True, False]
    assert not result.quarantined()[:, 7].any()


def test_slow_build_within_one_zone_is_no_slow_zone() -> None:
    """A slow build in one zone is told from a slow zone by the healthy replicas beside it there."""
    result = driven("sequential", [1.0, 4.0, 4.0, 4.0, 1.0, 1.0, 1.0, IDLE], layout=ZONED, cap_ratio=0.8)
    assert condemned(result) == [True, False]
    assert not result.quarantined()[:, 4:].any()


def test_cap_holds_for_zones_as_well() -> None:
    """A slow replica that the cap keeps in rotation condemns its kernel, in a slow zone as elsewhere."""
    slow = [1.0, 4.0, 4.0, 4.0, 1.0, 1.0, 4.0, 4.0]
    result = driven("sequential", slow, layout=ZONED)
    assert result.quarantined()[-1].reshape(2, 4).sum(axis=1).tolist() == [2, 2]
    assert condemned(result) == [True, False]


def test_replica_without_traffic_is_released_after_silence() -> None:
    """In quarantine it serves nothing and shows no step times: the alarm ends, and traffic tests it again."""
    setup = make_configuration("sequential", clocked_fleet(LAYOUT), QUICK)
    shown = clocks([1.0, 4.0, *[1.0] * 6], 5.0, 20.0), clocks([1.0, IDLE, *[1.0] * 6], 20.0)
    result = run(setup, script(LAYOUT, 120, lambda seen, now_s: shown[int(now_s > 20.0)](seen, now_s)))
    away = result.quarantined()[:, 1]
    assert away.any()
    assert not away[-1]


@pytest.mark.parametrize("seed", range(4))
def test_slow_zones_follow_their_definition(seed: int) -> None:
    """All shown replicas of the zone slow, of two kernels, one proven, and most elsewhere healthy."""
    rng, fleets, replicas = stream(seed, "zones"), 400, 8
    zones, owner = rng.permutation([0, 0, 0, 1, 1, 1, 2, -1]), np.repeat([0, 1], 4)
    bad = (zones == 0) & (rng.random((fleets, 1)) < 0.7)
    slow = np.where(bad, rng.random((fleets, replicas)) < 0.9, rng.random((fleets, replicas)) < 0.2)
    shown = slow | (rng.random((fleets, replicas)) < 0.7)
    proven = slow & (rng.random((fleets, replicas)) < 0.5)
    case: Any = SimpleNamespace(owner=owner, kernels=2)
    found = slow_zones(OwnClocks(shown, slow, proven), zones, case)
    expected = np.zeros_like(found)
    for b in range(fleets):
        for zone in range(3):
            mine, others = np.flatnonzero(zones == zone), np.flatnonzero(zones != zone)
            seen = [r for r in mine if shown[b, r]]
            beside = [r for r in others if shown[b, r]]
            sound = sum(not slow[b, r] for r in beside)
            several = len({owner[r] for r in seen}) > 1
            if several and all(slow[b, seen]) and any(proven[b, seen]) and 2 * sound > len(beside):
                expected[b, mine] = True
    assert np.array_equal(found, expected)
    assert found.any()
