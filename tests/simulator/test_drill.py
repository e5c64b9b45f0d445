"""Every shipped drill is sound, and those of simulated kinds run there through the same phases."""

from __future__ import annotations

import pytest

from faults.drill.outcome import DrillVerdict
from scripts.drill.documents import read_drill, shipped_drills, targets_of
from scripts.drill.inputs import NOBODY
from scripts.drill.sim import drill_simulated

LIVE_ONLY = {"block-edge", "crossed-answers", "kv-corruption", "poisoned-prefix", "stuck-token"}
SIMULATED = sorted(set(shipped_drills()) - LIVE_ONLY)
#: Who keeps a bar that `hysteresis` misses.
DRIVEN = {"silent-hard": "sequential"}
#: What a fleet must reach, s: until traffic leaves what is broken.
BARS_S = {"silent-hard": 15.0, "silent-soft": 60.0, "hang": 15.0, "crash": 5.0}


def test_the_library_is_large_and_says_where_each_drill_runs() -> None:
    """A dozen drills run in both worlds; the others are refused by the simulator, not by live servers."""
    refused = {name: targets_of(read_drill(name)) for name in shipped_drills()}
    assert len(SIMULATED) >= 12
    assert {name for name, by in refused.items() if by["sim"]} == LIVE_ONLY
    assert {name for name, by in refused.items() if by["local"]} == set()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", SIMULATED)
def test_every_simulated_drill_is_proved_and_undone(name: str) -> None:
    """The fault shows after its onset and not before, and the controller does as the drill expects."""
    outcome = drill_simulated(read_drill(name), DRIVEN.get(name, "hysteresis"), 0, lambda _: None)
    assert [(one.before, one.happened) for one in outcome.run.faults] == [(False, True)] * len(
        outcome.run.faults
    )
    assert outcome.verdict is DrillVerdict.PASSED, outcome.reason
    assert outcome.run.undone


def test_without_anybody_who_heals_the_same_drill_fails() -> None:
    """The verdict follows who drives."""
    outcome = drill_simulated(read_drill("three-bits"), NOBODY, 0, lambda _: None)
    assert outcome.verdict is DrillVerdict.FAILED
    assert "moved: never" in outcome.reason


@pytest.mark.parametrize(("name", "bar_s"), BARS_S.items())
def test_a_drill_states_its_bar_and_who_is_slower_fails(name: str, bar_s: float) -> None:
    """The bars stand in the documents, for both worlds; nobody at all, the slowest, misses each but that of a
    crash, which the gateway's own retries meet.
    """
    read = read_drill(name)
    assert read.drill.spec.expect.moved_within_s == bar_s
    assert not any(targets_of(read).values())
    outcome = drill_simulated(read, NOBODY, 0, lambda _: None)
    missed = [one.expected for one in outcome.checks if one.name == "moved" and not one.passed]
    assert missed == ([] if name == "crash" else [f"within {bar_s:g} s"])


def test_a_policy_that_is_right_too_late_fails() -> None:
    """Forty-six seconds keep the bar of a soft clause and miss that of a hard one."""
    outcome = drill_simulated(read_drill("silent-hard"), "hysteresis", 0, lambda _: None)
    assert outcome.verdict is DrillVerdict.FAILED
    assert "not within 15 s" in outcome.reason
    assert "never" not in outcome.reason
