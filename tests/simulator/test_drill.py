"""Every shipped drill is valid, and those of simulated kinds run in the simulator in the same phases."""

from __future__ import annotations

import pytest

from faults.drill.outcome import DrillVerdict
from scripts.drill.documents import read_drill, shipped_drills, targets_of
from scripts.drill.inputs import NOBODY
from scripts.drill.sim import drill_simulated

LIVE_ONLY = {"block-edge", "crossed-answers", "kv-corruption", "poisoned-prefix", "stuck-token"}
SIMULATED = sorted(set(shipped_drills()) - LIVE_ONLY)
#: The policy for a drill whose bar `hysteresis` misses.
DRIVEN = {"silent-hard": "sequential"}
#: Required seconds until traffic has left the broken replicas.
BARS_S = {"silent-hard": 15.0, "silent-soft": 60.0, "hang": 15.0, "crash": 5.0}


def test_the_library_is_large_and_states_where_each_drill_runs() -> None:
    """A dozen drills run in both worlds; the simulator refuses the others, live servers refuse none."""
    refused = {name: targets_of(read_drill(name)) for name in shipped_drills()}
    assert len(SIMULATED) >= 12
    assert {name for name, by in refused.items() if by["sim"]} == LIVE_ONLY
    assert {name for name, by in refused.items() if by["local"]} == set()


@pytest.mark.parametrize("name", SIMULATED)
def test_every_simulated_drill_is_proved_and_undone(name: str) -> None:
    """The fault shows after its onset and not before, and the controller acts as the drill expects."""
    outcome = drill_simulated(read_drill(name), DRIVEN.get(name, "hysteresis"), 0, lambda _: None)
    assert [(one.before, one.happened) for one in outcome.run.faults] == [(False, True)] * len(
        outcome.run.faults
    )
    assert outcome.verdict is DrillVerdict.PASSED, outcome.reason
    assert outcome.run.undone


def test_without_a_controller_the_same_drill_fails() -> None:
    """The verdict depends on the driver."""
    outcome = drill_simulated(read_drill("three-bits"), NOBODY, 0, lambda _: None)
    assert outcome.verdict is DrillVerdict.FAILED
    assert "moved: never" in outcome.reason


@pytest.mark.parametrize(("name", "bar_s"), BARS_S.items())
def test_a_drill_states_its_bar_and_a_slower_driver_fails(name: str, bar_s: float) -> None:
    """The bars are in the documents, for both worlds; without a controller all but a crash's are missed.

    The gateway's own retries meet that one.
    """
    read = read_drill(name)
    assert read.drill.spec.expect.moved_within_s == bar_s
    assert not any(targets_of(read).values())
    outcome = drill_simulated(read, NOBODY, 0, lambda _: None)
    missed = [one.expected for one in outcome.checks if one.name == "moved" and not one.passed]
    assert missed == ([] if name == "crash" else [f"within {bar_s:g} s"])


def test_a_policy_that_acts_too_late_fails() -> None:
    """Forty-six seconds meet the bar of a soft clause and miss that of a hard one."""
    outcome = drill_simulated(read_drill("silent-hard"), "hysteresis", 0, lambda _: None)
    assert outcome.verdict is DrillVerdict.FAILED
    assert "not within 15 s" in outcome.reason
    assert "never" not in outcome.reason
