"""The control endpoint of a replica that was started for drills, below ``/selvage/drill/``.

It stands in the middleware, so vLLM's development mode, which opens every engine method to anybody, stays
off. It owns the HTTP faults, forwards the others to the engine, and watches the lease from this side too:
the engine's process ends faults by itself, this one also flushes the prefix cache.

The port of drills (``opened``) is a listener of the server's own process that answers control calls and
nothing else. Clients and gateways reach the port of ``/v1/``; a NetworkPolicy lets whoever steers drills
reach this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

from .asgi import App, Receive, Scope, Send, read_body, send_json
from .document import FINAL_KINDS, HTTP_KINDS, FaultSpec, fault_of
from .gate import CallRefusedError, DrillGate, refusal
from .http_faults import HttpFault
from .lease import LONGEST_S, Lease, forget_cancels, lease_for, read_lease, was_cancelled, write_lease
from .ranks import ask_ranks

PREFIX = "/selvage/drill/"
#: Set in the scope of calls that came by the port of drills.
AT_DOOR = "selvage_at_door"
_WATCH_S = 0.2
#: What an order of another form raises on its way to a fault.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
_ENGINE_WITHIN_S = 30.0
_STATUS_WITHIN_S = 3.0


class Control:
    """Faults of one replica, as its API process sees them."""

    def __init__(self, gate: DrillGate) -> None:
        self.gate = gate
        self.http: dict[str, HttpFault] = {}
        self.engine: dict[str, FaultSpec] = {}
        self.expired: list[str] = []
        self._client: Any = None
        self._watcher: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call; every refusal says why and changes nothing."""
        host, at_door = (scope.get("client") or (None,))[0], bool(scope.get(AT_DOOR))
        reason = refusal(self.gate, host, scope.get("headers", ()), at_door=at_door)
        if reason:
            await send_json(send, 403, {"refused": reason})
            return
        try:
            self._client = scope["app"].state.engine_client
            status, answer = 200, await self._answer(scope, receive)
        except (CallRefusedError, TimeoutError, *MALFORMED) as problem:
            status, answer = 400, {"refused": str(problem)}
        await send_json(send, status, answer)

    async def _answer(self, scope: Scope, receive: Receive) -> dict[str, Any]:
        action = scope["path"].removeprefix(PREFIX)
        if action == "status":
            return await self.status()
        actions: dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "inject": self._inject,
            "renew": self._renew,
            "undo": self._undo,
        }
        if action not in actions or scope["method"] != "POST":
            raise CallRefusedError("known: POST inject, renew, undo; GET status")
        body = json.loads(await read_body(receive) or b"{}")
        if action == "undo":
            self._call_back(str(body.get("name") or ""))  # at once, whatever else is under way
        async with self._turn:
            return await actions[action](body)

    async def _inject(self, body: dict[str, Any]) -> dict[str, Any]:
        spec, ttl_s = fault_of(body.get("fault")), _ttl_s(body)
        if spec.name in self.http or spec.name in self.engine:
            return {"already": True}
        if not self.http and not self.engine:
            forget_cancels(self.gate.folder)
        undone = read_lease(self.gate.folder).undone
        write_lease(self.gate.folder, lease_for(ttl_s, tuple(name for name in undone if name != spec.name)))
        self._watch()
        if spec.kind in HTTP_KINDS:
            self.http[spec.name] = HttpFault(spec)
            return {"injected": True}
        self.engine[spec.name] = spec
        try:
            said = await self._engine("selvage_drill_inject", _ENGINE_WITHIN_S, body["fault"])
        except CallRefusedError:
            await self._withdraw(spec.name)
            raise
        return {"injected": True} | said

    async def _withdraw(self, name: str) -> None:
        """Take back what one worker refused, or none confirmed: others may have it, or get it later."""
        self._call_back(name)
        with contextlib.suppress(CallRefusedError):
            await self._engine("selvage_drill_undo", _STATUS_WITHIN_S, name)
        self.engine.pop(name, None)

    async def _renew(self, body: dict[str, Any]) -> dict[str, Any]:
        if not self.http and not self.engine:
            raise CallRefusedError("no fault is in force; what a lease has ended stays ended")
        write_lease(self.gate.folder, lease_for(_ttl_s(body), read_lease(self.gate.folder).undone))
        return {"lease_left_s": read_lease(self.gate.folder).left_s()}

    async def _undo(self, body: dict[str, Any]) -> dict[str, Any]:
        return await self.undo(str(body.get("name") or ""))

    def _named(self, name: str) -> list[str]:
        """Faults in force that ``name`` means; the empty name means all."""
        return [each for each in (*self.http, *self.engine) if name in ("", each)]

    def _call_back(self, name: str) -> None:
        """Say in the lease that these may act no more: a hanging engine reads it, and hears no call."""
        lease = read_lease(self.gate.folder)
        names = {*lease.undone, *self._named(name), *filter(None, [name])}
        write_lease(self.gate.folder, Lease(lease.ends_at_s, tuple(sorted(names))))

    async def undo(self, name: str = "") -> dict[str, Any]:
        """End one fault, or all (empty name), and flush caches; again and again with the same outcome."""
        names = self._named(name)
        self._call_back(name)
        in_engine = [each for each in names if each in self.engine]
        for each in names:
            self.http.pop(each, None)
        said = await self._engine("selvage_drill_undo", _ENGINE_WITHIN_S, name)
        flushed = bool(await asyncio.wait_for(self._client.reset_prefix_cache(True), _ENGINE_WITHIN_S))
        for each in in_engine:
            self.engine.pop(each, None)
        return {
            "undone": names,
            "canary": said["canary"],
            "canary_is_clean": bool(said["is_clean"]),
            "ranks": said["ranks"],
            "flushed": flushed,
        }

    async def status(self) -> dict[str, Any]:
        """What is in force on both sides; ``engine`` is null where the engine does not answer in time."""
        http = [{"name": n, "kind": f.spec.kind, "hits": f.hits} for n, f in self.http.items()]
        engine = None
        with contextlib.suppress(CallRefusedError, TimeoutError):
            engine = await self._engine("selvage_drill_status", _STATUS_WITHIN_S)
        lease = read_lease(self.gate.folder)
        return {
            "http": http,
            "engine": engine,
            "expired": list(self.expired),
            "lease_left_s": lease.left_s(),
            "injected": sorted([*self.http, *self.engine]),
            "cancelled": was_cancelled(self.gate.folder),
        }

    async def _engine(self, method: str, within_s: float, *given: Any) -> dict[str, Any]:
        return await ask_ranks(self._client, method, within_s, *given)

    def _watch(self) -> None:
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._end_overdue())

    async def _end_overdue(self) -> None:
        while self.http or self.engine:
            await asyncio.sleep(_WATCH_S)
            lease = read_lease(self.gate.folder)
            for name in [each for each in (*self.http, *self.engine) if not lease.allows(each)]:
                async with self._turn:
                    if name in self.http or name in self.engine:
                        if name not in lease.undone and name not in self.expired:
                            self.expired.append(name)
                        await self._undo_or_forget(name)

    async def _undo_or_forget(self, name: str) -> None:
        try:
            await self.undo(name)
        except (CallRefusedError, TimeoutError):
            spec = self.engine.get(name)
            if spec is not None and spec.kind in FINAL_KINDS:
                self.engine.pop(name, None)


def _ttl_s(body: dict[str, Any]) -> float:
    ttl_s = body.get("ttl_s")
    if not isinstance(ttl_s, (int, float)) or not 0.0 < ttl_s <= LONGEST_S:
        raise CallRefusedError(f"ttl_s: expected seconds above 0 and at most {LONGEST_S:g}, got {ttl_s!r}")
    return float(ttl_s)


def opened(control: Control, application: object) -> asyncio.Task[None]:
    """Begin to listen on the gate's port; ``application`` is vLLM's, whose state holds the engine."""
    import uvicorn  # vLLM's own server

    config = uvicorn.Config(
        answering(control, application),
        host=control.gate.host,
        port=control.gate.port,
        lifespan="off",
        log_level="warning",
        access_log=False,
    )
    server = uvicorn.Server(config)
    # Signals are for vLLM's server, in whose process this one runs.
    server.capture_signals = contextlib.nullcontext
    return asyncio.get_running_loop().create_task(server.serve())


def answering(control: Control, application: object) -> App:
    """What answers at the door."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and str(scope.get("path", "")).startswith(PREFIX):
            await control({**scope, "app": application, AT_DOOR: True}, receive, send)
        elif scope["type"] == "http":
            await send_json(send, 404, {"refused": f"this port answers below {PREFIX} alone"})

    return answer
