"""Step times on machines other than the certified one: a slow zone is still left."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.documents.route import HeldAgainst
from contracts.loading.shipped import SHIPPED_SUITE
from contracts.loading.uris import resolve_uri
from contracts.scoring.incident_measures import measure_incident
from contracts.scoring.switches import measure_switches
from scripts.e5.suite import expand_suite, load_suite
from scripts.studies.worlds.machines import Belief, later, on_other_machines
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario

#: With scrapes every 5 s the usual step time is learned in 300 s.
LATER_S = 300.0


def scenario(name: str) -> CompiledScenario:
    """A scenario of E5 with its faults delayed."""
    suite, file = load_suite(resolve_uri(SHIPPED_SUITE, Path.cwd() / "tests"))
    return later(next(one for one in expand_suite(suite, file) if one.name == name), LATER_S)


@pytest.mark.parametrize("belief", [(0.25, 0.25), (4.0, 4.0)])
def test_slow_zone_is_left_on_uncertified_machines(belief: Belief) -> None:
    """Every step takes four times as long as certified, or a quarter.

    Compared with its own past the slow zone is left within a minute.
    """
    world = scenario("slow-zone")
    found: dict[HeldAgainst, float] = {}
    held: tuple[HeldAgainst, ...] = ("off", "usual")
    for one in held:
        record = run_episodes(world, ControllerDriver(on_other_machines(world, belief, one)), [1])[0]
        incident = measure_incident(record)
        assert incident is not None
        found[one] = incident.mttr_s
    assert found["usual"] <= 60.0
    assert found["off"] > 10.0 * found["usual"]


@pytest.mark.parametrize("name", ["quiet", "surge", "rolling-restart"])
def test_ordinary_change_on_such_machines_moves_no_slice(name: str) -> None:
    """No false switch where nothing is wrong except the certified step times."""
    world = scenario(name)
    record = run_episodes(world, ControllerDriver(on_other_machines(world, (0.5, 2.0), "usual")), [1])[0]
    assert measure_switches(record).false_switches == 0
