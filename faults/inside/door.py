"""The port of drills: a listener of the server's own process that answers control calls and nothing else.

Clients and gateways reach the port of ``/v1/``; a NetworkPolicy lets whoever steers drills reach this one.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

from .asgi import App, Receive, Scope, Send, send_json
from .control import AT_DOOR, PREFIX, Control


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
    server.capture_signals = nullcontext  # signals are for vLLM's server, in whose process this one runs
    return asyncio.get_running_loop().create_task(server.serve())


def answering(control: Control, application: object) -> App:
    """What answers at the door."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and str(scope.get("path", "")).startswith(PREFIX):
            await control({**scope, "app": application, AT_DOOR: True}, receive, send)
        elif scope["type"] == "http":
            await send_json(send, 404, {"refused": f"this port answers below {PREFIX} alone"})

    return answer
