"""Logs of decisions as transitions: files, the reward from telemetry, exploration, and Minari."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from contracts.errors import DocumentError
from contracts.loading.uris import resolve_uri
from controller.decision import Decision
from controller.ports import Observation
from policies.learned.exploring import CHOICE, LOG_PROBABILITY, TICK, ExploringPolicy, log_probability
from policies.offline.observed import MOVE_WEIGHT
from policies.offline.transitions import (
    TransitionHeader,
    Transitions,
    load_all,
    load_transitions,
    save_transitions,
)
from policies.registry import make_configuration
from policies.supervised import meta_sha256
from scripts.train.offline_logs import chooser_for, record_incidents
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import load_scenario
from tests.support.documents.own_meta import write_own_meta
from tests.support.fleets.synthetic import write_world


def made_up(ticks: int = 5, seed: int = 1, **header: Any) -> Transitions:
    """A log of a live drill with random numbers."""
    rng = np.random.default_rng(seed)
    fields: dict[str, Any] = {
        "world": "live",
        "episode": "drill",
        "policy_id": "p",
        "seed": -1,
        "reward_source": "telemetry",
        "encoding_version": 2,
        "contract_sha256": "0" * 64,
        "tick_s": 1.0,
    }
    return Transitions(
        header=TransitionHeader(**(fields | header)),
        observation=rng.normal(size=(ticks + 1, 4)).astype(np.float32),
        choice=rng.integers(0, 9, (ticks, 3)),
        reward=rng.normal(size=ticks),
        cost=rng.normal(size=ticks),
        log_probability=-rng.exponential(size=ticks),
    )


@pytest.fixture(scope="module")
def incident() -> CompiledScenario:
    """The shipped silent fault: home is re-quantised midway."""
    uri = "package:contracts/library/scenarios/silent-requantise.yaml"
    return load_scenario(resolve_uri(uri, "tests"))


def test_a_log_survives_its_file_and_equal_logs_give_equal_bytes(tmp_path: Path) -> None:
    """A file holds the log exactly; writing it twice gives the same sha256."""
    log = made_up()
    first, second = save_transitions(tmp_path / "a.npz", log), save_transitions(tmp_path / "b.npz", log)
    back = load_transitions(tmp_path / "a.npz")
    assert first == second
    assert back.header == log.header
    for name in ("observation", "choice", "reward", "cost", "log_probability"):
        np.testing.assert_array_equal(getattr(back, name), getattr(log, name))


def test_a_file_that_is_no_log_is_refused_with_its_name(tmp_path: Path) -> None:
    """A broken file is named in the error and nothing is executed from it."""
    path = tmp_path / "broken.npz"
    path.write_bytes(b"not an archive")
    with pytest.raises(DocumentError, match=r"broken\.npz"):
        load_transitions(path)
    np.savez(tmp_path / "object.npz", header=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DocumentError, match=r"object\.npz"):
        load_transitions(tmp_path / "object.npz")


def test_logs_of_two_encodings_are_not_mixed(tmp_path: Path) -> None:
    """Logs used for learning together share one encoding."""
    save_transitions(tmp_path / "a.npz", made_up())
    save_transitions(tmp_path / "b.npz", made_up(encoding_version=1))
    with pytest.raises(DocumentError, match="encoding version 2"):
        load_all([tmp_path / "a.npz", tmp_path / "b.npz"])


@pytest.mark.parametrize("name", ["reward", "observation"])
def test_a_log_with_nan_is_refused(name: str) -> None:
    """A NaN in a reward or an observation is an error."""
    log = made_up()
    broken = getattr(log, name).copy()
    broken[0] = np.nan
    with pytest.raises(ValueError, match=name):
        replace(log, **{name: broken})


def test_the_reward_from_telemetry_falls_with_a_fault_and_rises_with_a_response(
    incident: CompiledScenario,
) -> None:
    """The reward of a log falls when the fault shows in telemetry, and less where a policy responds."""
    onset = int(min(change.at_s for change in incident.fault_changes))
    (cured,) = record_incidents(incident, "sequential", [3], 0.0)
    (bare,) = record_incidents(incident, "fixed", [3], 0.0)
    late = slice(onset + 200, None)
    assert bare.reward[late].mean() < bare.reward[20:onset].mean() - 0.01
    assert cured.reward[late].mean() > bare.reward[late].mean() + 0.01
    assert bare.cost[late].mean() > 0.0 > bare.cost[20:onset].mean()
    for log in (cured, bare):
        assert np.all((log.reward <= 1.0 + 1e-12) & (log.reward >= -MOVE_WEIGHT))
        assert not log.has_propensity


def test_the_probabilities_of_all_choices_sum_to_one() -> None:
    """Over all choices that could be drawn the logged propensities sum to 1, even without an open kernel."""
    open_to = np.array([[[True, False, True]], [[False, False, False]], [[True, True, True]]])
    usual = np.array([[1], [2], [3]])
    total = np.zeros(3)
    with np.errstate(divide="ignore"):
        for choice in range(4):
            total += np.exp(log_probability(np.full((3, 1), choice), usual, open_to, 0.3))
    np.testing.assert_allclose(total, 1.0)


def test_exploration_departs_as_often_as_its_propensity(incident: CompiledScenario) -> None:
    """The logged choices differ from the base policy's as often as their probabilities state."""
    (log,) = record_incidents(incident, "fixed", [3], 0.1)
    assert log.has_propensity
    usual = np.where(log.choice == scenario_home(incident), 1, 0)
    away, ticks = (usual == 0).sum(), usual.size
    expected = 0.1 * 4 / 5  # one of five open kernels is home itself
    assert abs(away - expected * ticks) < 4.0 * np.sqrt(expected * ticks)
    assert np.all(log.log_probability <= 0.0)


def test_where_the_baseline_drives_its_choices_are_logged(incident: CompiledScenario, tmp_path: Path) -> None:
    """After exploration leads to a demotion nothing is drawn: the baseline's choice has probability 1."""
    meta = str(write_own_meta(tmp_path, move_ratio=1.0))
    (log,) = record_incidents(incident, "fixed", [3], 0.5, meta=meta)
    certain = log.log_probability == 0.0
    since = int(certain.argmax())
    assert 0 < since < log.ticks - 10
    assert certain[since:].all()
    assert (log.choice[since:] == incident.setup.layout.known_good).all()
    assert len(np.unique(log.choice[:since])) > 1
    assert log.header.meta_contract_sha256 == meta_sha256(meta)


def scenario_home(scenario: CompiledScenario) -> NDArray[np.int64]:
    """Home kernel of every slice."""
    return scenario.setup.home


def test_a_restored_explorer_draws_what_it_would_have_drawn(tmp_path: Path) -> None:
    """Noise depends only on seed, fleet and tick, so a restored memory continues with the same actions."""
    scenario = load_scenario(write_world(tmp_path))
    setup = make_configuration("hysteresis", scenario.setup)
    slices = len(scenario.contract.slices)
    policy = ExploringPolicy(base=setup.policy, slices=slices, rate=0.5, seed=7)
    seen = _observation(scenario)
    state = policy.initial(1)
    for _ in range(3):
        _, state = policy.propose(seen, state)
    again = {name: array.copy() for name, array in state.items()}
    (_, one), (_, other) = policy.propose(seen, state), policy.propose(seen, again)
    np.testing.assert_array_equal(one[CHOICE], other[CHOICE])
    assert int(one[TICK][0]) == 4
    assert np.isfinite(one[LOG_PROBABILITY]).all()


def _observation(scenario: CompiledScenario) -> Observation:
    kept: list[Decision] = []
    driver = ControllerDriver(make_configuration("fixed", scenario.setup), watch=kept.append)
    run_episodes(scenario, driver, [1])
    return kept[-1].observation


@pytest.mark.needs("rl")
def test_minari_keeps_every_number_of_the_logs(tmp_path: Path, incident: CompiledScenario) -> None:
    """Logs written as a Minari dataset are read back unchanged, costs and propensities included."""
    from policies.offline.data import write_minari
    from tests.support.minari_logs import read_minari

    layout = chooser_for(incident.setup).layout
    logs = record_incidents(incident, "fixed", [3, 4], 0.2)
    folder = write_minari(logs, "selvage/incidents-v0", tmp_path, layout)
    back = read_minari("selvage/incidents-v0", tmp_path)
    assert folder.is_dir()
    for one, other in zip(logs, back, strict=True):
        assert one.header == other.header
        for name in ("observation", "choice", "reward", "cost", "log_probability"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    with pytest.raises(DocumentError, match="free"):
        write_minari(logs, "selvage/incidents-v0", tmp_path, layout)
    for name in ("a b", "incidents", "../selvage/incidents-v1"):
        with pytest.raises(DocumentError, match="an id such as"):
            write_minari(logs, name, tmp_path, layout)


@pytest.mark.needs("rl")
def test_an_interrupted_dataset_leaves_no_folder(
    tmp_path: Path, incident: CompiledScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an interruption while a dataset is written its name is free."""
    from policies.offline import data

    def interrupted(**given: object) -> None:
        (tmp_path / str(given["dataset_id"]) / "data").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr("policies.offline.data.minari.create_dataset_from_buffers", interrupted)
    logs = record_incidents(incident, "fixed", [3], 0.2)
    with pytest.raises(KeyboardInterrupt):
        data.write_minari(logs, "selvage/incidents-v0", tmp_path, chooser_for(incident.setup).layout)
    assert not (tmp_path / "selvage" / "incidents-v0").exists()
