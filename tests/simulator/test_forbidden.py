"""Attempts sent to cells that the plan forbids, and the effect of sticky sessions on a violating kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from contracts.documents.scenario import Scenario
from contracts.loading.loader import load_text
from contracts.scoring.episode import EpisodeRecord
from contracts.scoring.measures import amplification, forbidden_dispatched
from policies.registry import make_configuration
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.scenario import compile_scenario
from tests.support.fleets.episodes import broken_record, move_at
from tests.support.fleets.synthetic import scenario_document, write_world

HORIZON_S = 200.0
SEEDS = (1, 2, 3)
WRONG = {
    "name": "wrong",
    "kind": "requantise",
    "target": {"kernel": "bf16"},
    "condition": "requantise-w4",
    "onset_s": 40.0,
}
ERRORS = {
    "name": "errors",
    "kind": "http_errors",
    "target": {"kernel": "int8"},
    "dose": 0.3,
    "onset_s": 60.0,
}
CASES = {
    "numeric": [WRONG],
    "intermittent": [
        {**WRONG, "shape": "intermittent", "intermittent": {"period_s": 40.0, "duty_ratio": 0.5}}
    ],
    "with retries": [WRONG, ERRORS],
}


def episodes(folder: Path, configuration: str, faults: list[dict[str, object]]) -> list[EpisodeRecord]:
    """Episodes of the synthetic world with mostly sticky sessions, one per seed."""
    document = scenario_document(faults=faults, horizon_s=HORIZON_S, rate_rps=16.0)
    document["spec"]["workload"]["session_share"] = 0.8  # type: ignore[index]
    path = write_world(folder, document)
    loaded = load_text(yaml.safe_dump(document), str(path))
    assert isinstance(loaded, Scenario)
    compiled = compile_scenario(loaded, str(path))
    return run_episodes(compiled, ControllerDriver(make_configuration(configuration, compiled.setup)), SEEDS)


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("configuration", ["shield-alone", "threshold", "hysteresis", "sequential"])
def test_no_attempt_goes_to_a_cell_that_the_plan_forbids(
    tmp_path: Path, configuration: str, case: str
) -> None:
    """Once a plan is in force, sticky sessions, retries and queues send nothing to a cell that it forbids.

    Every run has such cells.
    """
    for record in episodes(tmp_path, configuration, CASES[case]):
        assert record.forbidden.any()
        assert forbidden_dispatched(record) == 0.0


def test_a_policy_without_shield_does_send_there(tmp_path: Path) -> None:
    """The count can differ from 0: fixed tables keep using a kernel known to break a hard clause."""
    assert all(forbidden_dispatched(record) > 100.0 for record in episodes(tmp_path, "fixed-bare", [WRONG]))


@pytest.mark.parametrize("configuration", ["shield-alone", "threshold", "hysteresis", "sequential"])
def test_sticky_sessions_amplify_nothing(tmp_path: Path, configuration: str) -> None:
    """After detection no minute sends more of all attempts to violating cells than without the fault."""
    pairs = zip(
        episodes(tmp_path, configuration, [WRONG]), episodes(tmp_path, configuration, []), strict=True
    )
    assert max(amplification(record, calm) for record, calm in pairs) <= 0.0


def test_every_request_is_sent_as_often_as_it_is_tried(tmp_path: Path) -> None:
    """Attempts are at least the requests that ended at a replica, and at most two per request."""
    for record in episodes(tmp_path, "fixed-bare", [ERRORS]):
        offered = int(record.offered.sum())
        assert record.answered.sum() <= record.dispatched.sum() <= 2 * offered
        assert record.dispatched.sum() > offered - record.shed.sum()


def test_amplification_is_the_largest_surplus_of_a_minute() -> None:
    """Hand-made: half of all attempts go to the broken kernel after detection, none without the fault."""
    record, calm = move_at(broken_record(), 60), move_at(broken_record(), 0)
    sent = np.zeros_like(record.answered_by)
    sent[:, 2] = 10
    half = sent.copy()
    half[150:, 2], half[150:, 0] = 5, 5
    for episode, counts in ((record, half), (calm, sent)):
        object.__setattr__(episode, "dispatched", counts)
    assert amplification(record, calm) == pytest.approx(50 * 5 / (60 * 10))
    assert np.isnan(amplification(calm, record)) or amplification(calm, record) <= 0.0
