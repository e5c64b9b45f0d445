"""ASGI middleware for drills: ``--middleware selvage_inject.inside.middleware.DrillMiddleware``.

Routes the control endpoint, lets HTTP faults act on the requests they strike, and tells the engine what only
the HTTP side sees: the slice of a request and that a client went away. In a server that was not started for
drills every control call is refused and nothing else is touched.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

from .asgi import App, Message, Receive, Scope, Send, header, is_last
from .conditions import mark_of
from .control import PREFIX, Control, opened
from .document import TriggerSpec
from .gate import gate
from .lease import note_cancel, read_lease, was_cancelled

_SERVED = "/v1/"
_REQUEST_ID = b"x-request-id"
_REPLICA = b"x-selvage-replica"
#: How a fault serves a request in place of the application it is given.
Serve = Callable[[App, Scope, Receive, Send], Awaitable[None]]


class DrillMiddleware:
    """Stands around vLLM's application."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._control = Control(gate())
        self._in_flight = 0
        self._door: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, struck or not."""
        path = str(scope.get("path", ""))
        if scope["type"] == "lifespan" and self._control.gate.port and self._door is None:
            self._door = opened(self._control, scope.get("app"))
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = _named(send, self._control.gate.replica)
        if path.startswith(PREFIX):
            await self._control(scope, receive, send)
        elif not self._control.http and not self._control.engine:
            await self._app(scope, receive, send)
        else:
            await self._drilled(path, scope, receive, send)

    async def _drilled(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        self._in_flight += path.startswith(_SERVED)
        try:
            folder = self._control.gate.folder if path.startswith(_SERVED) else None
            watched = _Watched(receive, send, folder)
            await self._struck(path, self._marked(scope))(scope, watched.receive, watched.send)
        finally:
            self._in_flight -= path.startswith(_SERVED)

    def _struck(self, path: str, scope: Scope) -> App:
        """The application inside of every HTTP fault that strikes this request."""
        app = self._app
        lease = read_lease(self._control.gate.folder)
        for name, fault in list(self._control.http.items()):
            holds = fault.concerns(path) and lease.allows(name) and self._holds(fault.spec.trigger, scope)
            if holds and fault.strikes():
                app = _inside(fault.serve, app)
        return app

    def _holds(self, trigger: TriggerSpec, scope: Scope) -> bool:
        folder, name = self._control.gate.folder, header(scope, self._control.gate.slice_header)
        return (
            (not trigger.slice or trigger.slice == name)
            and self._in_flight >= trigger.min_batch_size
            and (not trigger.after_cancel or was_cancelled(folder))
        )

    def _marked(self, scope: Scope) -> Scope:
        """``scope``, whose request id carries its slice's mark where a fault of the engine asks for it."""
        name = header(scope, self._control.gate.slice_header)
        wanted = {spec.trigger.slice for spec in self._control.engine.values()}
        if name and name in wanted:
            given = header(scope, _REQUEST_ID.decode()) or uuid.uuid4().hex
            others = [(key, value) for key, value in scope["headers"] if key.lower() != _REQUEST_ID]
            scope["headers"] = [*others, (_REQUEST_ID, (given + mark_of(name)).encode("latin-1"))]
        return scope


def _named(send: Send, replica: str) -> Send:
    """``send``, whose answers name ``replica`` in a header; as it is where that is empty."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (_REPLICA, replica.encode())]}
        await send(message)

    return sent if replica else send


def _inside(serve: Serve, app: App) -> App:
    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        await serve(app, scope, receive, send)

    return served


class _Watched:
    """A request's two ends, watched for a client that goes away before its answer is complete.

    folder: where that is noted; None where nobody cares.
    """

    def __init__(self, receive: Receive, send: Send, folder: Path | None) -> None:
        self._receive, self._send, self._folder = receive, send, folder
        self._complete = False

    async def receive(self) -> Message:
        """The next message of the client."""
        message = await self._receive()
        if message["type"] == "http.disconnect" and not self._complete and self._folder is not None:
            note_cancel(self._folder)
        return message

    async def send(self, message: Message) -> None:
        """Pass a message to the client."""
        await self._send(message)
        self._complete |= is_last(message)
