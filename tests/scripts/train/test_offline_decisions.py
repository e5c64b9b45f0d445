"""A controller's decision log as transitions: its decisions with a learned policy's inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from contracts.documents import KernelPool
from contracts.errors import DocumentError
from contracts.loading.loader import load_as
from contracts.telemetry import FleetTelemetry, SampleRates
from controller.options import ControllerSetup
from live.control.journal import Beginning, DecisionLog
from live.control.loop import ControlPorts, LiveController, Turn
from live.run.options import RunOptions, documents_for, recipe, setup_again
from scripts.cli.offline import read_logs
from scripts.train.offline_fit import hashes
from scripts.train.offline_logs import TransitionRecorder, chooser_for
from tests.support.cluster.path_documents import contract, meta_contract, policy, pool
from tests.support.documents.documents_written import write_yaml
from tests.support.fleets.builders import quiet_telemetry, with_probes
from tests.support.fleets.fakes import ManualClock, RecordingActuator, ScriptedTelemetry

REPLICAS = {"fp16": ("fp16-0", "fp16-1"), "fp32": ("fp32-0",)}
RATES = SampleRates(probes_per_s=1.0, scrape_interval_s=1.0)
TICKS, BROKEN_S = 60, 25.0
ARRAYS = ("observation", "choice", "reward", "cost", "log_probability")


def told_in(folder: Path, name: str = "hysteresis") -> dict[str, object]:
    """Documents in ``folder``, and the recipe of a set-up made from them."""
    pool_file = write_yaml(folder / "pool.yaml", pool())
    contract_file = write_yaml(folder / "contract.yaml", contract())
    document = policy(meta_contract(folder), policy=name)
    policy_file = write_yaml(folder / f"{name}.yaml", document)
    options = RunOptions(policy=str(policy_file), contract=str(contract_file))
    documents = documents_for(load_as(KernelPool, pool_file), pool_file, options)
    return recipe(documents, options, REPLICAS, RATES)


def seen(setup: ControllerSetup, ticks: int) -> Iterator[FleetTelemetry]:
    """Probes of every replica each second; the numbers of fp16 break after ``BROKEN_S``."""
    layout, rng = setup.layout, np.random.default_rng(7)
    _, slices, replicas = layout.shape
    for at in range(1, ticks + 1):
        values = 2e-4 * rng.uniform(0.8, 1.2, (1, replicas, slices, len(layout.probe_metrics)))
        if at > BROKEN_S:
            values[:, layout.replica_kernel == 0] += 0.05
        told = quiet_telemetry(layout, float(at))
        told.offered[:] = 3
        yield with_probes(told, layout, values)


@dataclass(frozen=True)
class Listening:
    """A recorder of simulated episodes attached to a live controller."""

    recorder: TransitionRecorder

    def turn(self, turn: Turn) -> None:
        """Record one tick."""
        assert turn.decision is not None
        self.recorder.take(turn.before, turn.after, turn.decision)


def ran(folder: Path, told: dict[str, object], ticks: int, *watchers: Listening) -> None:
    """One start of a controller with ``told``, for this many ticks; its log in ``folder``."""
    governed(folder, told, setup_again(told).setup, ticks, *watchers)


def governed(
    folder: Path, told: dict[str, object], setup: ControllerSetup, ticks: int, *watchers: Listening
) -> None:
    """A controller of ``setup`` that logs ``told``."""
    log = DecisionLog(folder, Beginning(setup=setup, state=None, documents=told, code_version="1"))
    ports = ControlPorts(
        source=ScriptedTelemetry(seen(setup, ticks)),
        clock=ManualClock(),
        actuator=RecordingActuator(()),
        watchers=(log, *watchers),
    )
    one = LiveController(setup, ports)
    for _ in range(ticks):
        one.step()
        assert one.last_error == ""
    log.close()


def test_a_log_holds_what_a_listener_to_the_controller_would_have_kept(tmp_path: Path) -> None:
    """Every array of an episode from the log is that of a recorder beside the controller, bit for bit."""
    told = told_in(tmp_path)
    setup = setup_again(told).setup
    recorder = TransitionRecorder(setup=setup, chooser=chooser_for(setup.fleet), world="live")
    ran(tmp_path / "chat", told, TICKS, Listening(recorder))
    (listened,) = recorder.logs("listened", [-1])
    (found,) = read_logs(tmp_path / "chat")
    for name in ARRAYS:
        assert getattr(found, name).tobytes() == getattr(listened, name).tobytes(), name
    assert (found.header.world, found.header.episode, found.header.seed) == ("live", "chat-1", -1)
    assert found.header.reward_source == "telemetry"
    assert not found.has_propensity
    prose = found.choice[:, list(setup.layout.slices).index("prose")]
    assert prose[0] == 0  # at home on fp16
    assert prose[-1] == 1  # on fp32, after its numbers broke
    assert list(hashes(tmp_path / "chat")) == ["decisions-000001.jsonl"]


def test_each_start_of_a_controller_is_an_episode_and_a_short_one_is_none(tmp_path: Path) -> None:
    """A restart is a new episode, with its own documents; one tick has no outcome, and its log is refused."""
    for name, ticks in (("hysteresis", 12), ("sequential", 1), ("hysteresis", 9)):
        ran(tmp_path / "chat", told_in(tmp_path, name), ticks)
    assert [one.ticks for one in read_logs(tmp_path / "chat")] == [11, 8]
    ran(tmp_path / "short", told_in(tmp_path), 1)
    with pytest.raises(DocumentError, match="2 ticks or more"):
        read_logs(tmp_path / "short")


def test_a_log_that_is_decided_otherwise_now_is_refused(tmp_path: Path) -> None:
    """A log that its own documents do not reproduce had other inputs: nothing is learned from it."""
    others, own = told_in(tmp_path, "sequential"), told_in(tmp_path, "hysteresis")
    governed(tmp_path / "wrong", others, setup_again(own).setup, TICKS)
    with pytest.raises(DocumentError, match="decided otherwise"):
        read_logs(tmp_path / "wrong")


def test_an_altered_log_is_refused(tmp_path: Path) -> None:
    """The chain is checked before anything is learned from."""
    ran(tmp_path / "chat", told_in(tmp_path), 5)
    (file,) = (tmp_path / "chat").glob("*.jsonl")
    text = file.read_text()
    assert '"executed": true' in text
    file.write_text(text.replace('"executed": true', '"executed": false', 1))
    with pytest.raises(DocumentError, match="chat"):
        read_logs(tmp_path / "chat")
