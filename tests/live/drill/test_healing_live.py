"""A live fleet heals although any part may be killed meanwhile; speed is not judged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from contracts.documents import KernelContract
from contracts.documents.scenario import ScheduledFault
from contracts.loading.loader import dump_text, load_as
from contracts.loading.uris import resolve_uri
from contracts.metrics import metric
from contracts.telemetry import Source
from controller.state import QuarantineReason
from faults.client import record as records
from faults.client.replica import ReplicaFaults
from faults.drill.ledger import pending
from live.control.chain import read_chain
from live.control.journal import CONTROL
from live.control.loop import LiveController
from live.drill.servers import faults_of
from live.errors import LiveError
from live.fleet.state import FleetFolder
from live.gateway.admin import EnvoyAdmin
from live.load import LoadPlan, LoadTap, run_load
from live.run.assemble import controlled_fleet
from live.run.options import ProbeOptions, RunOptions
from tests.support.documents.documents_written import envelope, write_yaml
from tests.support.paths import ROOT
from tests.support.servers.live_fleets import lost, state_of

pytestmark = [
    pytest.mark.needs("vllm", "torch", "envoy", "aiohttp"),
    pytest.mark.slow,
]
BAD, SLICE = "fp16-0", "prose"
LATE = int(QuarantineReason.LATE)
#: A dose that every probe shows: 0.1 nats mean KL where the contract allows 0.002.
THREE_BITS = {"name": "bad", "kind": "requantise", "condition": "requantise-w3", "live": {"bits": 3}}


class Still:
    """A constant clock of CPU time: a busy machine makes no decision late."""

    def now_ms(self) -> float:
        """Always the same."""
        return 0.0


def until(holds: Callable[[], bool], meanwhile: Callable[[], object] = lambda: None) -> None:
    """Wait for ``holds``, as long as the test may take."""
    while not holds():
        meanwhile()
        time.sleep(0.3)


def contract_of(place: Path, source: Source) -> Path:
    """The shipped contract with its clauses on ``source`` alone; a busy machine breaks clauses on time."""
    shipped = load_as(KernelContract, resolve_uri("package:contracts/library/serving-pool.yaml", "test"))
    kept = tuple(one for one in shipped.spec.clauses if metric(one.metric).source == source)
    spec = shipped.spec.model_copy(update={"clauses": kept})
    file = place / "contract.yaml"
    file.write_text(dump_text(shipped.model_copy(update={"spec": spec})))
    return file


def serving(fleet: FleetFolder) -> set[str]:
    """Replicas to which the gateway sends requests of the slice; empty if unknown."""
    state = state_of(fleet)
    try:
        with closing(EnvoyAdmin(state.gateway.admin_url)) as admin:
            hosts = admin.hosts(state.slices)
    except LiveError:
        return set()
    return {one.replica for one in hosts if one.slice == SLICE and one.weight > 0}


def light(fleet: FleetFolder, seconds: float) -> LoadPlan:
    """Two requests a second on both slices."""
    return LoadPlan(
        url=state_of(fleet).gateway.url,
        rate_rps=2.0,
        seconds=seconds,
        slices=(SLICE, "numbers"),
        answer_tokens=4,
        timeout_s=120.0,
    )


@contextmanager
def loaded(fleet: FleetFolder) -> Iterator[None]:
    """Light load during the block."""
    tap = LoadTap()
    given = (light(fleet, 900.0),)
    thread = threading.Thread(target=run_load, args=given, kwargs={"tap": tap}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        tap.stop.set()
        thread.join()


def unhurried(controller: LiveController) -> LiveController:
    """``controller`` with decisions that seem to take no time."""
    controller.ports = replace(controller.ports, cpu=Still())
    return controller


def faults(fleet: FleetFolder) -> ReplicaFaults:
    """Control of the bad replica's faults."""
    return faults_of(fleet, BAD, fleet.drills / "records")


def answered_by(fleet: FleetFolder, requests: int) -> set[str]:
    """The replicas that answer requests of the slice."""
    url, found = f"{state_of(fleet).gateway.url}/v1/completions", set()
    for _ in range(requests):
        body = {"model": "selvage", "prompt": [1, 2, 3], "max_tokens": 1}
        answer = httpx.post(url, json=body, headers={"x-selvage-slice": SLICE}, timeout=120.0)
        answer.raise_for_status()
        found.add(answer.headers["x-selvage-replica"])
    return found


def test_a_silent_fault_is_left_and_taken_back_bit_for_bit(fleet: FleetFolder) -> None:
    """Weights rounded to three bits: the gateway sends that replica nothing more, and the undo is exact."""
    contract = contract_of(fleet.path.parent, Source.PROBE)
    options = RunOptions(contract=str(contract), probes=ProbeOptions(limit_s=60.0))
    fault = ScheduledFault.model_validate(THREE_BITS | {"onset_s": 0.0, "target": {"kernel": "fp16"}})
    with loaded(fleet), controlled_fleet(fleet, options) as one:
        controller = unhurried(one.controller)
        until(lambda: BAD in serving(fleet), controller.step)
        try:
            injected = faults(fleet).inject(fault, 590.0)
            assert faults(fleet).verify(injected).happened
            until(lambda: bool(now := serving(fleet)) and BAD not in now, controller.step)
            assert BAD not in answered_by(fleet, 8)
        finally:
            undone = faults(fleet).undo()
    assert undone.clean
    assert faults(fleet).status()["injected"] == []
    assert list(records.open_records(fleet.drills / "records")) == []


def test_a_replica_that_is_late_on_the_way_is_left_and_its_kernel_is_not(fleet: FleetFolder) -> None:
    """Twelve seconds before a request gets to the engine, in none of its metrics: the gateway counts it as
    open, and the peer on the same kernel continues.
    """
    contract = contract_of(fleet.path.parent, Source.LATENCY)
    options = RunOptions(contract=str(contract), probes=ProbeOptions(limit_s=60.0))
    late = {"name": "late", "kind": "latency", "dose": 12_000.0, "onset_s": 0.0}
    fault = ScheduledFault.model_validate(late | {"target": {"kernel": "fp16", "replica": 0}})
    with loaded(fleet), controlled_fleet(fleet, options) as one:
        controller = unhurried(one.controller)
        until(lambda: BAD in serving(fleet), controller.step)
        try:
            faults(fleet).inject(fault, 590.0)
            until(lambda: LATE in controller.state.quarantine_reason, controller.step)
            reason = controller.state.quarantine_reason[0].tolist()
            until(lambda: bool(now := serving(fleet)) and BAD not in now, controller.step)
        finally:
            undone = faults(fleet).undo()
    assert reason == [LATE, 0, 0]
    assert undone.clean


def drill_of(fleet: FleetFolder) -> Path:
    """A drill that lasts longer than the test, without guards."""
    fault = THREE_BITS | {"target": {"kernel": "fp16", "replica": 0}, "onset_s": 2.0}
    spec = {
        "description": "a fault that outlives its runner",
        "pool": "test-pool",
        "pool_uri": "pool.yaml",
        "load": {"rate_rps": 2.0, "answer_tokens": 4, "timeout_s": 120.0},
        "faults": [fault],
        "steady_state": [{"name": "answers", "metric": "failure_rate", "threshold": 1.0}],
        "undo": {"verify_probes": 2, "readmit_over_s": 2.0},
        "time_to_live_s": 900.0,
    }
    return write_yaml(fleet.path.parent / "long.yaml", envelope("FaultDrill", "long", spec))


def command(fleet: FleetFolder, *words: str) -> list[str]:
    """``selvage`` on the fleet."""
    return [sys.executable, "-m", "scripts.cli.main", *words, "--folder", str(fleet.path)]


@contextmanager
def running_drill(fleet: FleetFolder) -> Iterator[subprocess.Popen[bytes]]:
    """The drill in a separate process, once its fault is proved; killed at the end."""
    said = fleet.path.parent / "said.txt"
    words = ("drill", "run", str(drill_of(fleet)), "--target", "local", "--policy", "sequential")
    with said.open("wb") as stream:
        runner = subprocess.Popen(command(fleet, *words), stdout=stream, stderr=stream, cwd=ROOT)
    try:

        def verified() -> bool:
            assert runner.poll() is None, said.read_text()
            return "verified at" in said.read_text()

        until(verified)
        yield runner
    finally:
        runner.kill()
        runner.wait()


def kill_controller(fleet: FleetFolder) -> None:
    """SIGKILL the holder of the controller's lock; its prober ends with it."""
    pid = int((fleet.path / CONTROL / "controller.lock").read_text())
    os.kill(pid, signal.SIGKILL)


def answers(fleet: FleetFolder) -> bool:
    """Whether the gateway answers a request of the slice, and says where it sends them."""
    try:
        return bool(answered_by(fleet, 1)) and bool(serving(fleet))
    except httpx.HTTPError:
        return False


def kill_envoy(fleet: FleetFolder) -> None:
    """SIGKILL of the gateway, and wait for the next one."""
    was = state_of(fleet).gateway.process
    assert was is not None
    os.kill(was.pid, signal.SIGKILL)
    until(lambda: state_of(fleet).gateway.process not in (None, was) and answers(fleet))


def decided(fleet: FleetFolder) -> list[dict[str, object]]:
    """Every line of the decision log, its chain checked from file to file."""
    rows: list[dict[str, object]] = []
    last = None
    for file in sorted((fleet.path / CONTROL).glob("decisions-*.jsonl")):
        found = read_chain(file, last)
        rows, last = rows + list(found.rows), found.last_sha256
    return rows


def test_whatever_is_killed_during_a_drill_traffic_goes_on_and_the_fault_ends(fleet: FleetFolder) -> None:
    """Controller with prober, gateway and runner get SIGKILL in turn: no request is lost, the lease ends
    the fault, an undo closes open records, and the next controller continues the same unbroken log.
    """
    with running_drill(fleet):
        until(lambda: len(decided(fleet)) > 3)
        kill_controller(fleet)
        until(lambda: bool(serving(fleet)))
        before = serving(fleet)
        assert lost(run_load(light(fleet, 3.0))) == []
        kill_envoy(fleet)
        assert serving(fleet) == before
        assert lost(run_load(light(fleet, 2.0))) == []
    assert (pending(fleet.drills) or {}).get("drill") == "long"
    rows = decided(fleet)
    words = ("run", "--seconds", "3", "--metrics-port", "0")
    with subprocess.Popen(command(fleet, *words), stderr=subprocess.PIPE, text=True, cwd=ROOT) as again:
        until(lambda: faults(fleet).status()["injected"] == [])
        told = subprocess.run(
            command(fleet, "drill", "undo"), capture_output=True, text=True, check=False, cwd=ROOT
        )
        _, said = again.communicate()
    assert (told.returncode, pending(fleet.drills)) == (0, None), told.stderr
    assert faults(fleet).undo().clean
    assert again.returncode == 0, said
    after = decided(fleet)
    assert json.dumps(after[: len(rows)]) == json.dumps(rows)
    assert len(after) > len(rows)
