"""An Envoy of our own before servers of others: a real Envoy, stand-in servers, no vLLM."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

from contracts.errors import DocumentError
from contracts.telemetry import ReplicaState
from controller.ports import RoutingPlan
from live.errors import LiveError
from live.fleet.plan import load_pool
from live.fleet.processes import process_id, runs
from live.gateway.actuator import EnvoyActuator, RoutingFrame
from live.ports import LiveReplica
from live.run import own_gateway
from live.run.own_gateway import end_gateway, ensure_gateway, read_gateway, serving_gateway
from scripts.cli.main import app
from tests.support.fleets.builders import make_layout
from tests.support.servers.gateways import stand_ins
from tests.support.servers.live_fleets import POOL

pytestmark = [pytest.mark.needs("envoy", "aiohttp")]
NAMES = ("fp16-0", "fp16-1", "fp32-0")


class Known:
    """``live.ports.Discovery`` of the ready replicas."""

    def __init__(self, found: tuple[LiveReplica, ...]) -> None:
        self._found = found

    def replicas(self) -> tuple[LiveReplica, ...]:
        """Every replica."""
        return self._found


def replicas_at(urls: dict[str, str]) -> tuple[LiveReplica, ...]:
    """Ready replicas; the kernel is part of their name."""
    return tuple(
        LiveReplica(name=name, kernel=name[:4], url=url, state=ReplicaState.READY)
        for name, url in urls.items()
    )


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[LiveReplica, ...]]:
    """Two stand-ins of one kernel and one of another; no Envoy of ours is left behind."""
    (tmp_path / "pool.yaml").write_text(POOL)
    with stand_ins(tmp_path, NAMES) as urls:
        yield replicas_at(urls)
    end_gateway(tmp_path / "run")


def ensure(place: Path, replicas: tuple[LiveReplica, ...], port: int = 0) -> tuple[str, int, bool]:
    """URL and process of the gateway, and whether it is new."""
    pool, file = load_pool(str(place / "pool.yaml"))
    found, new = ensure_gateway(place / "run", pool, file, replicas, port)
    assert found.gateway.process is not None
    return found.gateway.url, found.gateway.process.pid, new


def answered_by(url: str, slice_name: str, count: int = 6) -> set[str]:
    """The replicas that answer requests of a slice."""
    headers = {"x-selvage-slice": slice_name}
    with httpx.Client(timeout=10.0, headers=headers) as client:
        found = [client.post(f"{url}/v1/completions", json={"max_tokens": 2}) for _ in range(count)]
    return {one.headers.get("x-selvage-replica", "nobody") for one in found}


def await_answers(url: str, slice_name: str, wanted: set[str]) -> None:
    """Envoy's thread that serves follows its main thread in its own time."""
    deadline_at_s = time.monotonic() + 120.0
    while answered_by(url, slice_name) != wanted:
        assert time.monotonic() < deadline_at_s
        time.sleep(0.05)


def drive_home(place: Path, replicas: tuple[LiveReplica, ...]) -> None:
    """A controller's life: find the gateway, send the slice prose to the known-good kernel, end."""
    pool, file = load_pool(str(place / "pool.yaml"))
    layout = make_layout(kernels=2, slices=2, per_kernel=1)
    layout = type(layout)(
        kernels=("fp16", "fp32"),
        slices=("prose", "numbers"),
        replicas=NAMES,
        replica_kernel=np.array([0, 0, 1]),
        probe_metrics=(),
        known_good=1,
    )
    table = np.array([[[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]])
    plan = RoutingPlan(table=table, in_rotation=np.ones((1, 3), dtype=np.bool_), version=np.array([1]))
    with serving_gateway(place / "run", pool, file, replicas, 0) as front:
        actuator = EnvoyActuator(
            front.driver, Known(replicas), RoutingFrame(layout=layout, default_slice="prose")
        )
        assert actuator.apply(plan), actuator.last_error


@pytest.mark.parametrize("error", [OSError(28, "no space left"), KeyboardInterrupt()], ids=["disk", "ctrl-c"])
def test_a_gateway_that_cannot_be_recorded_is_stopped(
    tmp_path: Path,
    servers: tuple[LiveReplica, ...],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
) -> None:
    """A disk that fills, or Ctrl-C, while it comes up: no Envoy is left that no later start knows of."""
    begun: list[int] = []

    def fails(path: Path, value: dict[str, dict[str, dict[str, int]]], *, indent: int) -> str:
        begun.append(value["gateway"]["process"]["pid"])
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(own_gateway, "write_json", fails)
        with pytest.raises(type(error)):
            ensure(tmp_path, servers)
    with pytest.raises(ProcessLookupError):
        os.kill(begun[0], 0)
    assert ensure(tmp_path, servers)[2]


def test_it_outlives_its_controller_and_keeps_the_last_table(
    tmp_path: Path, servers: tuple[LiveReplica, ...]
) -> None:
    """Slices begin at home; the table of a controller that ended stands, also in an Envoy that died and was
    started again by the next one, at the same address.
    """
    url, pid, new = ensure(tmp_path, servers)
    assert new
    await_answers(url, "prose", {"fp16-0", "fp16-1"})
    await_answers(url, "numbers", {"fp32-0"})
    one = multiprocessing.get_context("spawn").Process(target=drive_home, args=(tmp_path, servers))
    one.start()
    one.join(60.0)
    assert one.exitcode == 0
    await_answers(url, "prose", {"fp32-0"})
    assert ensure(tmp_path, servers) == (url, pid, False)
    os.kill(pid, signal.SIGKILL)
    state = read_gateway(tmp_path / "run")
    assert state is not None
    assert state.gateway.process is not None
    while runs(state.gateway.process):
        time.sleep(0.02)
    again, other, new = ensure(tmp_path, servers)
    assert (again, new) == (url, True)
    assert other != pid
    await_answers(url, "prose", {"fp32-0"})
    assert end_gateway(tmp_path / "run")
    assert [process_id(one) for one in (pid, other)] == [None, None]  # waited for, as no zombie is


def test_other_servers_are_refused_while_it_runs_and_it_ends_when_asked(
    tmp_path: Path, servers: tuple[LiveReplica, ...]
) -> None:
    """Envoy reads its servers once; the command ends it, again without effect."""
    url, _, _ = ensure(tmp_path, servers)
    with pytest.raises(LiveError, match="--end-envoy"):
        ensure(tmp_path, servers[1:])
    with pytest.raises(LiveError, match="serves at port"):
        ensure(tmp_path, servers, port=1)
    words = ["run", "--pool", str(tmp_path / "pool.yaml"), "--folder", str(tmp_path / "run"), "--end-envoy"]
    said = CliRunner().invoke(app, words)
    assert (said.exit_code, said.output.strip()) == (0, "Envoy is ended")
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)
    assert "no Envoy of ours runs" in CliRunner().invoke(app, words).output


def test_no_text_of_users_stands_in_any_file(tmp_path: Path, servers: tuple[LiveReplica, ...]) -> None:
    """Prompts in a body, a query, a header or the slice's name, answered, shed, misrouted or broken off: what
    the gateway and its controller write holds none of them.
    """
    url, _, _ = ensure(tmp_path, servers)
    await_answers(url, "prose", {"fp16-0", "fp16-1"})
    secret = "my-private-prompt"
    body = {"prompt": secret, "messages": [{"role": "user", "content": secret}], "max_tokens": 2}
    headers = {"x-selvage-slice": secret, "user-agent": secret, "x-request-id": secret, "referer": secret}
    places = ("/v1/completions", f"/v1/completions?q={secret}", f"/v1/{secret}", f"/{secret}")
    pool, file = load_pool(str(tmp_path / "pool.yaml"))
    with serving_gateway(tmp_path / "run", pool, file, servers, 0) as front:
        with httpx.Client(timeout=10.0, headers=headers) as client:
            for place in places:
                client.post(f"{url}{place}", json=body)
        until_at_s, codes = time.monotonic() + 120.0, set[int]()
        while not codes & {
            404,
            405,
        }:  # of the third place, which a server refuses; its row follows the others
            assert time.monotonic() < until_at_s, f"no row of the last request that was routed: {codes}"
            codes |= {one.code for one in front.statistics.read().requests}
            time.sleep(0.05)
    written = [one for one in (tmp_path / "run").rglob("*") if one.is_file()]
    assert len(written) > 3
    assert [one.name for one in written if secret.encode() in one.read_bytes()] == []


@pytest.mark.parametrize("url", ["http://server.example:8000", "https://10.0.0.1:8000", "http://10.0.0.1"])
def test_an_address_that_envoy_cannot_take_is_refused(tmp_path: Path, url: str) -> None:
    """Names, TLS and a missing port: said before anything is started."""
    (tmp_path / "pool.yaml").write_text(POOL)
    with pytest.raises(DocumentError, match="IP-ADDRESS"):
        ensure(tmp_path, replicas_at({"fp16-0": url}))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--start-envoy",), "--pool with it"),
        (("--pool", "p.yaml", "--start-envoy", "--observe"), "--observe and --start-envoy"),
        (("--pool", "p.yaml"), "--start-envoy"),
    ],
)
def test_options_that_exclude_each_other_are_refused(words: tuple[str, ...], said: str) -> None:
    """Exit code 2, and what to do instead."""
    done = CliRunner().invoke(app, ["run", *words])
    assert done.exit_code == 2
    assert said in done.output
