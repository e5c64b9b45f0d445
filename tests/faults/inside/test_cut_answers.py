"""A cut answer counts as struck where it was cut, and nowhere else."""

from __future__ import annotations

import asyncio

import pytest

from faults.inside.asgi import Message, Receive, Scope, Send, is_last
from faults.inside.document import fault_of
from faults.inside.http_faults import HttpFault
from tests.faults.inside.test_middleware import START


@pytest.mark.parametrize("kind", ["cut_json", "cut_stream"])
@pytest.mark.parametrize("start", ["whole", "streamed"])
def test_what_was_not_cut_does_not_count(kind: str, start: str) -> None:
    """A stream is not cut as a whole answer, nor a whole answer as a stream: neither proves the fault."""
    fault = HttpFault(fault_of({"name": "f", "kind": kind, "dose": 1.0}))
    begins: Message = START if start == "streamed" else {**START, "headers": [(b"content-type", b"a/json")]}

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(begins)
        for more in (True, True, True, False):
            await send({"type": "http.response.body", "body": b"data: {}\n\n", "more_body": more})

    async def story() -> None:
        out: list[Message] = []

        async def send(message: Message) -> None:
            out.append(message)

        assert fault.strikes()
        await fault.serve(app, {"type": "http"}, nothing, send)
        assert sum(is_last(message) for message in out) == 1

    async def nothing() -> Message:
        return {"type": "http.disconnect"}

    asyncio.run(story())
    assert fault.hits == ((kind == "cut_stream") == (start == "streamed"))
