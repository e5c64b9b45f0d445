"""Windows and sequential detection at equal false switches: the matching, the world, the censoring."""

from __future__ import annotations

import json
import math
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.scoring.incident_measures import measure_incident
from contracts.scoring.intervals import Interval
from controller.detect.clauses import plan_clauses
from policies.registry import make_configuration
from scripts.bench.windows import figures
from scripts.studies.windows.cases import Watch, cases, count_false, fleets_of, measure_times
from scripts.studies.windows.compare import Size, compare, lower_bound_s, verdict, windows
from scripts.studies.windows.match import BracketSearch, match
from simulator import probe_fleet as windows_world
from simulator.drive import ControllerDriver
from simulator.probe_fleet import probe_world, run_fleets
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.limit import at_limit, limit_factor


@lru_cache(maxsize=4)
def world(horizon_s: float = 600.0) -> CompiledScenario:
    """The fleet of E5 that answers only probes."""
    return probe_world(horizon_s)


SEQUENTIAL = Watch(spec="sequential")
WINDOW = Watch(spec="hysteresis:window_s=20,min_samples=5")


@given(st.lists(st.integers(0, 60), min_size=2, max_size=40), st.integers(1, 50), st.booleans())
def test_matching_keeps_its_side_of_the_target(counts: list[int], target: int, above: bool) -> None:
    """For any count that grows with looseness, the setting found is on the requested side."""
    steps = sorted(counts)

    def count(x: float) -> int:
        return steps[min(int(x * len(steps)), len(steps) - 1)]

    search = BracketSearch(strict=0.0, loose=1.0, start=0.5, step=0.1, bisections=30)
    found = match(count, target, search, above=above)
    assert found.count == count(found.setting)
    if found.reached:
        assert found.count >= target if above else found.count <= target
    else:
        assert found.setting in (0.0, 1.0)
        assert (steps[-1] < target) if found.setting == 1.0 else (steps[0] > target)


@given(st.integers(1, 98), st.integers(1, 98))
def test_a_larger_target_is_never_matched_more_strictly(first: int, second: int) -> None:
    """Where the count grows with looseness, the setting grows with the target."""
    search = BracketSearch(strict=0.0, loose=1.0, start=0.5, step=0.1, bisections=40, slack=0.0)
    found = [
        match(lambda x: int(100 * x), target, search, above=True).setting
        for target in sorted((first, second))
    ]
    assert found[0] <= found[1]


def test_a_target_out_of_reach_is_reported() -> None:
    """A detector that stays quiet at its loosest is run there and marked as not matched."""
    found = match(lambda _: 3, 40, BracketSearch(strict=-8.0, loose=-0.3, start=-2.0), above=True)
    assert (found.setting, found.count, found.reached) == (-0.3, 3, False)


def test_the_control_is_exactly_at_its_limit() -> None:
    """On every slice the worst probe clause of a home kernel is at its limit, and none is beyond it."""
    control = at_limit(world())
    plan = plan_clauses(control.contract)
    for kernel in set(control.home.tolist()):
        for place in range(len(control.layout.slices)):
            mine = control.prompts.probe_of(place)
            factor = limit_factor(control.tables[kernel].probe[0, mine, 0], place, control.contract, plan)
            assert factor == pytest.approx(1.0, rel=1e-6)


def test_batches_change_no_record() -> None:
    """Three fleets at once and one at a time give the same tables, and so do two runs."""
    case = next(case for case in cases(world()) if case.whole)
    fleets = fleets_of(world(), case, range(3))
    runs = [run_fleets(world(), SEQUENTIAL.driver(world(), 0.0), fleets, batch=size) for size in (3, 1, 3)]
    for one, other in ((runs[0], runs[1]), (runs[0], runs[2])):
        for left, right in zip(one, other, strict=True):
            assert measure_incident(left) == measure_incident(right)
            assert left.incident is not None
            rows = int(left.incident.onset_at_s) + 60
            np.testing.assert_array_equal(left.table[:rows], right.table[:rows])


def test_stopping_after_the_fault_changes_no_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lag and recovery are the same whether or not a batch is followed to its horizon."""
    of = cases(world())[-2:]
    short = measure_times(world(), WINDOW, -4.0, of, range(3), 180.0)
    monkeypatch.setattr(windows_world._Batch, "_settled", lambda *_: False)
    long = measure_times(world(), WINDOW, -4.0, of, range(3), 180.0)
    np.testing.assert_array_equal(short.lag, long.lag)
    np.testing.assert_array_equal(short.mttr, long.mttr)


def test_undetected_faults_count_as_the_longest_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that never acts misses every fault: its times are the limit, neither missing nor longer."""
    monkeypatch.setattr(
        Watch,
        "driver",
        lambda self, scenario, looseness: ControllerDriver(make_configuration("fixed-bare", scenario.setup)),
    )
    found = measure_times(world(), SEQUENTIAL, 0.0, cases(world())[:2], range(2), 100.0)
    assert found.missed.all()
    assert found.open.all()
    np.testing.assert_array_equal(found.lag, 100.0)
    np.testing.assert_array_equal(found.mttr, 100.0)


def test_no_configuration_acts_before_the_fault_shows() -> None:
    """No lag is below one tick, and a larger fault of the same kind is not found later."""
    named = {case.label: case for case in cases(world())}
    picked = [named[f"bf16 requantise-{bits}, kernel"] for bits in ("w5", "w3")]
    found = measure_times(world(), SEQUENTIAL, 0.0, picked, range(4), 180.0)
    assert (found.lag >= world().tick_s).all()
    assert found.lag[1].mean() <= found.lag[0].mean()
    assert lower_bound_s(world()) == 2.0


def test_looser_settings_switch_falsely_more_often() -> None:
    """At the limit a budget of a million per slice-month gives more false switches than one of one."""
    control = at_limit(world(300.0))
    counts = [count_false(control, SEQUENTIAL, x, range(1, 5)).episodes for x in (0.0, 6.5)]
    assert counts[0] < counts[1]


def test_verdicts_follow_the_interval() -> None:
    """Faster or slower only if 1 is outside the limits."""
    limits = ((0.5, 0.9), (0.9, 1.1), (1.1, 1.2), (math.nan, math.nan))
    found = [verdict(Interval(mean=1.0, ci_low=low, ci_high=high, n=20)) for low, high in limits]
    assert found == ["faster", "level", "slower", "level"]


@pytest.mark.slow
def test_the_whole_comparison_is_the_same_twice() -> None:
    """A small comparison gives equal strict JSON twice, with a verdict for every fault."""
    size = Size(
        control_fleets=2,
        control_s=300.0,
        target=2,
        tuning_seeds=1,
        seeds=2,
        form_seeds=1,
        most_s=70.0,
        windows=((20, 5),),
        forms=(("sequential:prior=1", 0.05),),
    )
    assert len(windows(size)) == 1
    found = [figures(compare(size)) for _ in range(2)]
    assert json.dumps(found[0], allow_nan=False) == json.dumps(found[1], allow_nan=False)
    kinds = [found[0][f"least_worst/lag_cases_{kind}"] for kind in ("faster", "level", "slower")]
    assert sum(kind for kind in kinds if isinstance(kind, int)) == found[0]["cases"]
