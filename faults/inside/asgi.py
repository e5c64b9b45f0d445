"""ASGI in a few lines: bodies in, JSON out, and answers that are edited on their way to the client."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
#: JSON object of an answer (or of one event of a stream) -> the object that the client gets.
Edit = Callable[[dict[str, Any]], dict[str, Any]]

LONGEST_BODY = 1 << 20


async def read_body(receive: Receive) -> bytes:
    """The whole body of a request; ValueError above ``LONGEST_BODY`` bytes."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = bool(message.get("more_body"))
        if len(body) > LONGEST_BODY:
            raise ValueError("body too long")
    return body


async def send_json(send: Send, status: int, content: Any) -> None:
    """Answer with ``content``."""
    body = json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def header(scope: Scope, name: str) -> str:
    """Value of a request header by its lower-case name, empty where it is missing."""
    wanted = name.encode("latin-1")
    found = (value for key, value in scope.get("headers", ()) if key.lower() == wanted)
    return str(next(found, b"").decode("latin-1"))


def is_stream(start: Message) -> bool:
    """True where an answer that begins like this is a stream of events."""
    return any(
        key.lower() == b"content-type" and b"event-stream" in value for key, value in start.get("headers", ())
    )


def is_last(message: Message) -> bool:
    """True for the message that ends an answer."""
    return message["type"] == "http.response.body" and not message.get("more_body")


class EditedAnswer:
    """A ``send`` whose answer goes through ``edit``: as a whole, or event by event of a stream.

    Answers that are not successful, and text that is no JSON, pass unchanged. With ``cut`` only the first
    half of a whole answer is sent, under a length that fits; ``cuts`` counts these.
    """

    def __init__(self, send: Send, edit: Edit | None = None, *, cut: bool = False) -> None:
        self._send, self._edit, self._cut = send, edit, cut
        self._start: Message | None = None
        self._body = b""
        self.cuts = 0

    async def __call__(self, message: Message) -> None:
        """Take one message of the application."""
        if message["type"] == "http.response.start":
            if is_stream(message) or message["status"] != 200:
                await self._send(message)
            else:
                self._start = message
        elif self._start is None:
            body = self._events(message.get("body", b""))
            await self._send({**message, "body": body})
        else:
            self._body += message.get("body", b"")
            if is_last(message):
                await self._whole(self._start)

    async def _whole(self, start: Message) -> None:
        body = self._edited(self._body)
        body = body[: len(body) // 2] if self._cut else body
        self.cuts += self._cut
        kept = [(key, value) for key, value in start["headers"] if key.lower() != b"content-length"]
        headers = [*kept, (b"content-length", str(len(body)).encode())]
        await self._send({**start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    def _events(self, body: bytes) -> bytes:
        if self._edit is None or not body.startswith(b"data: {"):
            return body
        lines = body.split(b"\n\n")
        edited = [
            b"data: " + self._edited(line[6:]) if line.startswith(b"data: {") else line for line in lines
        ]
        return b"\n\n".join(edited)

    def _edited(self, text: bytes) -> bytes:
        try:
            plain = json.loads(text)
        except ValueError:
            return text
        edited = plain if self._edit is None or not isinstance(plain, dict) else self._edit(plain)
        return json.dumps(edited).encode()


class CutStream:
    """A ``send`` that ends a stream after ``events`` messages, without stop reason or ``[DONE]``; ``cuts``
    says whether it did.
    """

    def __init__(self, send: Send, events: int) -> None:
        self._send, self._left = send, events
        self._streams = False
        self.cuts = 0

    async def __call__(self, message: Message) -> None:
        """Take one message of the application."""
        if message["type"] == "http.response.start":
            self._streams = is_stream(message)
            await self._send(message)
        elif not self._streams or self._left > 0:
            self._left -= 1
            await self._send(message)
        elif not self.cuts:
            self.cuts = 1
            await self._send({"type": "http.response.body", "body": b""})
