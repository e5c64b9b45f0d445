"""Every shipped drill is sound, and those of simulated kinds run there through the same phases."""

from __future__ import annotations

import pytest

from faults.drill.outcome import DrillVerdict
from scripts.drill.documents import read_drill, shipped_drills, targets_of
from scripts.drill.inputs import NOBODY
from scripts.drill.sim import drill_simulated

LIVE_ONLY = {"block-edge", "crossed-answers", "kv-corruption", "poisoned-prefix", "stuck-token"}
SIMULATED = sorted(set(shipped_drills()) - LIVE_ONLY)


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
    outcome = drill_simulated(read_drill(name), "hysteresis", 0, lambda _: None)
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
