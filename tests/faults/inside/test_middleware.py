"""The HTTP side of drills, around a small application in place of vLLM's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.client.launch import DrillArguments, drill_arguments
from faults.inside.asgi import App, CutStream, EditedAnswer, Message, Receive, Scope, Send, is_last, send_json
from faults.inside.conditions import mark_of
from faults.inside.document import fault_of
from faults.inside.gate import TOKEN_HEADER
from faults.inside.http_faults import HttpFault
from faults.inside.lease import was_cancelled
from faults.inside.middleware import DrillMiddleware
from faults.inside.worker import DrillFaults

START: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream")],
}


class Engine:
    """Replaces vLLM's engine client: records its calls, answers as the worker does."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.flushes = 0
        self.hangs = False

    async def collective_rpc(
        self, method: str, timeout: float | None = None, args: tuple[Any, ...] = ()
    ) -> list[dict[str, Any]]:
        self.calls.append(method)
        if self.hangs:
            await asyncio.sleep(60.0)
        return [{"canary": "c", "is_clean": 1, "faults": [], "expired": []}]

    async def reset_prefix_cache(self, reset_running_requests: bool) -> bool:
        self.flushes += 1
        return reset_running_requests


class World:
    """A server around ``app``; ``ask`` sends one request and returns the client's answer."""

    def __init__(self, app: App, started: DrillArguments) -> None:
        self.engine = Engine()
        self.server = DrillMiddleware(app)
        state = type("State", (), {"engine_client": self.engine})()
        self.app = type("App", (), {"state": state})()
        self.token = started.token_file.read_text()

    async def ask(
        self, path: str, body: Any = None, headers: dict[str, str] | None = None, leaves: bool = False
    ) -> tuple[int, bytes]:
        sent: list[Message] = []
        incoming = [{"type": "http.request", "body": json.dumps(body).encode() if body is not None else b""}]

        async def receive() -> Message:
            return incoming.pop(0) if incoming and not leaves else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        scope: Scope = {
            "type": "http",
            "path": path,
            "method": "POST",
            "app": self.app,
            "client": ("127.0.0.1", 1),
            "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
        }
        await self.server(scope, receive, send)
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])

    async def steer(self, action: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        status, answer = await self.ask(f"/selvage/drill/{action}", body or {}, {TOKEN_HEADER: self.token})
        return status, json.loads(answer)

    async def inject(self, kind: str, ttl_s: float = 30.0, **more: Any) -> None:
        fault = {"name": kind, "kind": kind, **more}
        status, answer = await self.steer("inject", {"fault": fault, "ttl_s": ttl_s})
        assert status == 200, answer


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the path and the request id that it got."""
    headers = dict(scope["headers"])
    await receive()
    await asyncio.sleep(0)
    await send_json(
        send, 200, {"path": scope["path"], "id": headers.get(b"x-request-id", b"").decode(), "usage": 1}
    )


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DrillArguments:
    """An environment that was started for drills."""
    started = drill_arguments(tmp_path / "replica")
    for name, value in started.environment.items():
        if name != "PYTHONPATH":
            monkeypatch.setenv(name, value)
    return started


def run(started: DrillArguments, story: Callable[[World], Awaitable[None]], app: App = echo) -> None:
    """Run ``story`` in its own world."""
    asyncio.run(asyncio.wait_for(_play(story, app, started), 30.0))


async def _play(story: Callable[[World], Awaitable[None]], app: App, started: DrillArguments) -> None:
    await story(World(app, started))


def test_without_the_flag_everything_refuses(
    started: DrillArguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call is refused though the token is right, requests pass, and the worker refuses too."""
    monkeypatch.delenv("SELVAGE_DRILL")

    async def story(world: World) -> None:
        for action in ("inject", "renew", "undo", "status"):
            assert (await world.steer(action))[0] == 403
        assert (await world.ask("/v1/x"))[0] == 200
        assert world.engine.calls == []

    run(started, story)
    worker = DrillFaults()
    for answer in (
        worker.selvage_drill_inject({}),
        worker.selvage_drill_undo(),
        worker.selvage_drill_status(),
    ):
        assert "not started for drills" in answer["refused"]


def test_undo_can_be_repeated_and_always_flushes(started: DrillArguments) -> None:
    """With or without a fault in force, undo ends all faults and flushes the cache."""

    async def story(world: World) -> None:
        await world.inject("http_errors")
        assert (await world.ask("/v1/x"))[0] == 503
        for flushes in (1, 2, 3):
            status, answer = await world.steer("undo")
            assert status == 200
            assert answer["canary_is_clean"]
            assert world.engine.flushes == flushes
            assert (await world.ask("/v1/x"))[0] == 200

    run(started, story)


def test_a_lease_that_is_not_renewed_ends_the_fault(started: DrillArguments) -> None:
    """After its time the fault acts no more, is reported as ended, and cannot be renewed."""

    async def story(world: World) -> None:
        await world.inject("http_errors", ttl_s=0.3)
        assert (await world.ask("/v1/x"))[0] == 503
        while (await world.steer("status"))[1]["injected"]:
            await asyncio.sleep(0.05)
        assert (await world.ask("/v1/x"))[0] == 200
        assert (await world.steer("status"))[1]["expired"] == ["http_errors"]
        assert (await world.steer("renew", {"ttl_s": 5.0}))[0] == 400
        assert world.engine.flushes == 1

    run(started, story)


@pytest.mark.parametrize(
    "body", [{}, {"ttl_s": 5.0}, {"fault": {"name": "f", "kind": "slow"}, "ttl_s": 1e9}, []]
)
def test_bad_calls_are_refused_and_change_nothing(started: DrillArguments, body: Any) -> None:
    """An injection without fault or with an endless lease is refused before any worker is called."""

    async def story(world: World) -> None:
        status, answer = await world.steer("inject", body)
        assert status == 400
        assert answer["refused"]
        assert (await world.steer("status"))[1]["injected"] == []

    run(started, story)


def test_the_engine_learns_a_slice_from_the_request_id(started: DrillArguments) -> None:
    """Only requests of the slice that a fault asks for carry its mark, after the id they came with."""

    async def story(world: World) -> None:
        async def seen(**headers: str) -> str:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return str(json.loads((await world.ask("/v1/x", headers=named))[1])["id"])

        await world.inject("slow", trigger={"slice": "code"})
        assert await seen(x_selvage_slice="code", x_request_id="mine") == "mine" + mark_of("code")
        assert (await seen(x_selvage_slice="code")).endswith(mark_of("code"))
        assert await seen(x_selvage_slice="prose", x_request_id="mine") == "mine"
        await world.steer("undo")
        assert await seen(x_selvage_slice="code", x_request_id="mine") == "mine"

    run(started, story)


def test_a_client_that_goes_away_early_is_noted(started: DrillArguments) -> None:
    """A disconnect before the answer is complete counts as a cancelled request, one after it does not."""

    async def story(world: World) -> None:
        await world.inject("http_errors", trigger={"after_cancel": True})
        assert (await world.ask("/v1/x"))[0] == 200
        assert not was_cancelled(started.folder)
        await world.ask("/v1/x", leaves=True)
        assert was_cancelled(started.folder)
        assert (await world.ask("/v1/x"))[0] == 503

    run(started, story)


def test_answers_cross_and_the_last_one_keeps_its_own(started: DrillArguments) -> None:
    """Of three requests two get each other's answers; the third finds no partner and gets its own."""

    async def story(world: World) -> None:
        await world.inject("crossed_answers")
        assert json.loads((await world.ask("/v1/alone"))[1])["path"] == "/v1/alone"
        assert (await world.steer("status"))[1]["http"][0]["hits"] == 0
        answers = await asyncio.gather(*(world.ask(f"/v1/{name}") for name in "abc"))
        paths = [json.loads(body)["path"] for _, body in answers]
        assert sorted(paths) == ["/v1/a", "/v1/b", "/v1/c"]
        assert paths[:2] == ["/v1/b", "/v1/a"]
        assert paths[2] == "/v1/c"
        assert (await world.steer("status"))[1]["http"][0]["hits"] == 2

    run(started, story)


@given(st.integers(1, 200), st.floats(0.0, 1.0))
def test_a_share_of_requests_is_struck_evenly(requests: int, ratio: float) -> None:
    """After any number of requests the share struck differs from the wanted one by less than one request."""
    fault = HttpFault(fault_of({"name": "f", "kind": "http_errors", "dose": ratio}))
    struck = sum(fault.strikes() for _ in range(requests))
    assert abs(struck - ratio * requests) < 1.0 + 1e-6
    assert fault.hits == struck


async def _sent(wrap: Callable[[Send], Send], messages: list[Message]) -> list[Message]:
    out: list[Message] = []

    async def send(message: Message) -> None:
        out.append(message)

    wrapped = wrap(send)
    for message in messages:
        await wrapped(message)
    return out


@given(st.integers(1, 8), st.integers(1, 8))
def test_a_cut_stream_ends_once(events: int, kept: int) -> None:
    """Exactly one message ends the answer, and no more events than allowed come through."""
    data = [{"type": "http.response.body", "body": b"data: {}\n\n", "more_body": True} for _ in range(events)]
    end = {"type": "http.response.body", "body": b"data: [DONE]\n\n"}
    out = asyncio.run(_sent(lambda send: CutStream(send, kept), [START, *data, end]))
    assert sum(is_last(message) for message in out) == 1
    assert sum(message.get("body", b"").startswith(b"data:") for message in out) == min(kept, events + 1)


@given(st.binary(max_size=64))
def test_a_stream_that_is_no_json_passes_unchanged(text: bytes) -> None:
    """Editing never breaks unknown formats."""
    message = {"type": "http.response.body", "body": text}
    out = asyncio.run(_sent(lambda send: EditedAnswer(send, lambda answer: {}), [START, message]))
    try:
        json.loads(text.removeprefix(b"data: "))
    except ValueError:
        assert out[1]["body"] == text
