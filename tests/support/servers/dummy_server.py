"""A stand-in for a vLLM server, as a process: ``python dummy_server.py NAME PORT``.

It answers completions with its name, streams on request, hangs on request, and counts requests.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from aiohttp import web


class Dummy:
    """One server's behaviour; ``PUT /mode`` changes it: {"hang": true} lets completions wait forever."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.mode: dict[str, Any] = {}

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.count += 1
        if self.mode.get("hang"):
            await asyncio.Event().wait()
        if self.mode.get("status"):
            return web.json_response({"error": self.name}, status=self.mode["status"])
        if body.get("stream"):
            return await self._stream(request, int(body.get("max_tokens", 4)))
        await asyncio.sleep(float(self.mode.get("sleep_s", 0.0)))
        return web.json_response({"choices": [{"text": self.name}], "system_fingerprint": "dummy"})

    async def _stream(self, request: web.Request, tokens: int) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        for _ in range(tokens):
            await answer.write(f"data: {json.dumps({'text': self.name})}\n\n".encode())
            await asyncio.sleep(float(self.mode.get("token_s", 0.005)))
            if self.mode.get("hang"):
                await asyncio.Event().wait()
        await answer.write(b"data: [DONE]\n\n")
        return answer

    async def set_mode(self, request: web.Request) -> web.Response:
        self.mode = await request.json()
        return web.json_response(self.mode)

    async def counts(self, _: web.Request) -> web.Response:
        return web.json_response({"count": self.count})


async def serve(name: str, port: int) -> None:
    """Serve until killed."""
    dummy, app = Dummy(name), web.Application()
    app.router.add_post("/v1/completions", dummy.complete)
    app.router.add_put("/mode", dummy.set_mode)
    app.router.add_get("/count", dummy.counts)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
