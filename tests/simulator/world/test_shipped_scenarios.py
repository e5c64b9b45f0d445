"""The shipped example scenarios run, and show what their descriptions say."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from contracts.scoring.episode import EpisodeRecord
from contracts.scoring.incident_measures import has_incident
from policies.registry import make_configuration
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.scenario import load_scenario

LIBRARY = Path(str(files("contracts"))) / "library"


def episode(name: str, policy: str) -> EpisodeRecord:
    """One episode of a shipped scenario."""
    scenario = load_scenario(LIBRARY / "scenarios" / f"{name}.yaml")
    return run_episodes(scenario, ControllerDriver(make_configuration(policy, scenario.setup)), [1])[0]


def test_silent_requantise_is_an_incident_that_a_controller_ends() -> None:
    """The measured 4-bit dose breaks the shipped contract; the threshold policy leaves the kernel."""
    fixed, threshold = (episode("silent-requantise", policy) for policy in ("fixed-bare", "threshold"))
    assert has_incident(fixed)
    assert not fixed.violating[:120].any()
    assert fixed.failed.sum() == 0
    assert threshold.exposed.sum() < 0.7 * fixed.exposed.sum()


def test_ordinary_change_is_no_incident() -> None:
    """Restarts, scaling, a surge and lost scrapes break no clause, and nearly every request is answered."""
    record = episode("ordinary-change", "hysteresis")
    assert record.incident is None
    assert not (record.violating | record.runtime_violating).any()
    assert record.failed.sum() + record.shed.sum() <= 0.01 * record.offered.sum()
