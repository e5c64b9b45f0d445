"""A real trace of bursts, long prompts and short answers: the controller does not harm a healthy fleet."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from contracts.documents import Scenario
from contracts.loading.loader import load_as
from contracts.loading.uris import resolve_uri
from contracts.scoring.episode import EpisodeRecord
from policies.registry import make_configuration
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import compile_scenario, with_trace

pytestmark = pytest.mark.needs("azure_trace")

BASE = "package:contracts/library/suites/e5-base.yaml"
HORIZON_S, SEEDS = 240.0, (1, 2)


@dataclass
class Alarmed:
    """Driver of ``policy`` that notes which clauses were in alarm."""

    policy: str
    world: CompiledScenario
    clauses: set[str] = field(default_factory=set)

    def run(self) -> list[EpisodeRecord]:
        """One episode per seed."""
        setup = make_configuration(self.policy, self.world.setup)
        ids = self.world.setup.contract.clause_ids

        def listen(_: Any, __: Any, decision: Any) -> None:
            found = decision.judgement.alarm.any(axis=tuple(range(decision.judgement.alarm.ndim - 1)))
            self.clauses |= {name for name, alarm in zip(ids, found, strict=True) if alarm}

        return run_episodes(self.world, ControllerDriver(setup, log=listen), SEEDS)


def in_time(records: list[EpisodeRecord]) -> float:
    """Share of the offered requests that were answered within their slice's objectives."""
    answered = sum(int(one.answered.sum() - one.slo_missed.sum()) for one in records)
    return answered / sum(int(one.offered.sum()) for one in records)


@pytest.mark.slow
def test_bursts_of_long_prompts_are_no_fault(azure_trace_path: Path) -> None:
    """No replica is slow by its own clock, and the fleet answers no worse than under fixed-bare."""
    file = resolve_uri(BASE, "tests")
    scenario = with_trace(load_as(Scenario, file), azure_trace_path)
    spec = scenario.spec.model_copy(update={"horizon_s": HORIZON_S})
    world = compile_scenario(scenario.model_copy(update={"spec": spec}), str(file))
    routed, bare = Alarmed("sequential", world), Alarmed("fixed-bare", world)
    answered = in_time(routed.run())
    assert "R-step-time" not in routed.clauses
    assert answered >= in_time(bare.run()) - 0.005
