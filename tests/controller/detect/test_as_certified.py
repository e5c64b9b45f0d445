"""A kernel whose probes match the certified values again is certified at once, however rare the fault."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from contracts.rng import stream
from controller.detect.as_certified import kept_when_certified
from controller.detect.certified_drift import drift_tick, initial_drift
from policies.registry import make_configuration
from tests.support.fleets.certified_fleets import (
    LAYOUT,
    Change,
    certified,
    certified_fleet,
    plan_of,
    probes_at,
    scaled,
    telemetry_of,
)
from tests.support.fleets.worlds import Run, run

#: All replicas of the first kernel, which is the home of every slice.
BUILD = [0, 1, 2, 3]
SLICES = len(LAYOUT.slices)


def of_some_probes(share: float, factor: float, from_s: float) -> Change:
    """From ``from_s`` on a random ``share`` of the build's probes is multiplied by ``factor``."""
    rng = stream(4, "some")

    def change(values: NDArray[np.float64], replica: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:
        hit = np.isin(replica, BUILD) & (rng.random(replica.size) < share) & (now_s > from_s)
        return np.where(hit[:, None] * np.array([1.0, 0.0]) > 0.0, values * factor, values)

    return change


def condemned(configuration: str, seconds: int, change: Change) -> NDArray[np.bool_]:
    """bool [T, S]: the home kernel is not certified."""
    fleet = certified_fleet()
    ticks: Run = run(make_configuration(configuration, fleet), telemetry_of(fleet, seconds, change))
    return np.stack([~one.observation.certified[0, 0] for one in ticks.decisions])


def test_a_build_is_certified_again_as_soon_as_its_probes_match() -> None:
    """Eight probes a second: condemned while it drifts, certified again ten seconds after, not in minutes."""
    told = condemned("sequential", 240, scaled(BUILD, 20.0, 50.0, 120.0))
    assert told[70:120].all()
    assert not told[130:].any()
    assert condemned("sequential:drift=0", 140, scaled(BUILD, 20.0, 50.0, 120.0))[-1].all()


def test_a_fault_in_few_probes_is_not_cleared_by_the_matches_between() -> None:
    """A fifth of the probes stays far off: runs of a dozen matches are frequent, and none certifies it."""
    told = condemned("sequential", 400, of_some_probes(0.2, 100.0, 50.0))
    told = np.asarray(told.any(axis=1))
    first = int(told.argmax())
    assert 50 <= first < 200
    assert told[first:].all()


def test_certified_values_beyond_the_limit_prove_nothing() -> None:
    """Certified beyond the limit: a match only shows that the kernel is as bad as it was."""
    known = certified()
    fleet = certified_fleet()
    limit = float(fleet.contract.threshold[0])
    bad = replace(known, values=np.where(np.arange(2)[:, None, None, None] == 0, 3.0 * limit, known.values))
    assert kept_when_certified(known, fleet.contract)[0, :, 0].all()
    assert not kept_when_certified(bad, fleet.contract)[0, :, 0].any()
    assert kept_when_certified(bad, fleet.contract)[1, :, 0].all()


def test_repeats_with_noise_prove_nothing() -> None:
    """With repeat noise no run of matches is kept."""
    assert plan_of(certified_fleet(0.05)).runs is None
    assert "runs" not in initial_drift(1, plan_of(certified_fleet(0.05)))


def enough(seen: int, differed: int, most: float) -> float:
    """Matches in a row that certify again, from the definition."""
    share = min(most, 0.5 * differed / seen) if seen else most
    return math.log(20.0) / -math.log1p(-share)


def most_likely(differed: int, seen: int) -> float:
    """Log-likelihood of ``differed`` in ``seen`` probes at the share that fits them best."""
    return sum(count * math.log(count / seen) for count in (differed, seen - differed) if count)


def is_over(run_: int, seen: int, differed: int, relapses: int) -> bool:
    """Whether the run of matches rules out one constant share of differing probes, from the definition."""
    if differed < 2 or run_ < math.log(20.0) / -math.log1p(-0.5 * (differed - 1) / (seen - 1)):
        return False
    price = differed * (differed + 1) * 2.0 * math.sqrt(seen - 1) * (relapses + 1) * (relapses + 2)
    ratio = most_likely(differed - 1, seen - 1) - most_likely(differed - 1, seen - 1 + run_)
    return ratio >= math.log(20.0 * price)


def follow(row: list[int], off: bool, most: float) -> bool:
    """Add one probe to ``row``: matches in a row, probes of the fault, those that differed, relapses.

    Returns True where a new fault begins.
    """
    run_, seen, differed, relapses = row
    if not off:
        row[0] += 1
        return False
    if seen == 0 or run_ >= enough(seen, differed, most) or is_over(run_, seen, differed, relapses):
        row[:] = [0, 1, 1, relapses + 1 if seen and run_ < 100 * math.log(20.0) else 0]
        return True
    row[:] = [0, seen + run_ + 1, differed + 1, relapses]
    return False


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 12)), min_size=1, max_size=12), st.integers(0, 2**16))
def test_runs_are_those_of_the_definition(blocks: list[tuple[bool, int]], seed: int) -> None:
    """Matches in a row, and probes of a fault up to the last that differed, per slice and over all slices."""
    fleet, rng = certified_fleet(), stream(seed, "runs")
    plan = plan_of(fleet)
    state = initial_drift(1, plan)
    whole, own = [0, 0, 0, 0], [0, 0, 0, 0]
    differs = [off for off, length in blocks for _ in range(length)]
    for now_s, off in enumerate(differs):
        probes = probes_at(fleet, float(now_s), rng)
        mine = (probes.replica == 2) & (probes.slice == 0)
        probes.values[mine] *= 2.0 if off else 1.0
        state = drift_tick(state, probes, mine, plan)
        if follow(whole, off, 0.1):
            own[1:3] = [0, 0]
        follow(own, off, 0.5)
    runs = np.asarray(state["runs"])[0]
    replicas = len(LAYOUT.replicas)
    for subject in (2, replicas + LAYOUT.replica_kernel[2]):
        np.testing.assert_array_equal(runs[subject, SLICES], whole)
        np.testing.assert_array_equal(runs[subject, 0], own)
