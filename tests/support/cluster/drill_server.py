"""A small server around the staged drill extension, run as a process: ``python drill_server.py HOST PORT``.

Drills are answered by the code that runs inside vLLM; the engine behind it is fake.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import uvicorn
from selvage_inject.inside.middleware import DrillMiddleware

#: Required of requests, as by vLLM's --api-key; "": none.
KEY = os.environ.get("MADE_UP_KEY", "")


class Engine:
    """Replaces vLLM's engine client: answers as its workers do, without faults."""

    async def collective_rpc(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        """Every worker reports that it is clean."""
        return [{"canary": "c", "is_clean": 1, "faults": [], "expired": []}]

    async def reset_prefix_cache(self, *_: Any) -> bool:
        """Always succeeds."""
        return True


class State:
    """State of a Starlette application."""

    engine_client = Engine()


class App:
    """Answers completions; wrapped by ``DrillMiddleware``, as in vLLM."""

    state = State()

    def __init__(self) -> None:
        self.inside = DrillMiddleware(self.answer)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """As Starlette: the application stands in the scope of everything, the lifespan among it."""
        await self.inside({**scope, "app": self}, receive, send)

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        """One completion, or the server's own facts."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if KEY and dict(scope["headers"]).get(b"authorization", b"").decode() != f"Bearer {KEY}":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b'{"error": "Unauthorized"}'})
            return
        await asyncio.sleep(0.01)
        asked = json.loads(body) if body else {}
        streamed = asked.get("stream")
        plain = {"data": [{"id": "made-up"}], "choices": [{"text": "ok"}]}
        text = _stream(asked) if streamed else json.dumps(plain).encode()
        kind = b"text/event-stream" if streamed else b"application/json"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": text})


def _stream(asked: dict[str, Any]) -> bytes:
    """A greedy answer, token by token: the same numbers for every request."""
    events = [_event(asked, at) for at in range(asked.get("max_tokens", 1))]
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in events) + b"data: [DONE]\n\n"


def _event(asked: dict[str, Any], at: int) -> dict[str, Any]:
    row = {f"token_id:{7 + at}": -0.1, f"token_id:{8 + at}": -3.0}
    logprobs = {"tokens": [f"token_id:{7 + at}"], "token_logprobs": [-0.1], "top_logprobs": [row]}
    choice: dict[str, Any] = {"text": "ok", "finish_reason": None}
    if at + 1 == asked.get("max_tokens", 1):
        choice["finish_reason"] = "length"
    if "logprobs" in asked:
        choice["logprobs"] = logprobs
    return {"id": f"cmpl-{asked.get('request_id', 'made-up')}", "choices": [choice]}


async def _live(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


if __name__ == "__main__":
    uvicorn.run(App(), host=sys.argv[1], port=int(sys.argv[2]), log_level="warning", lifespan="on")
