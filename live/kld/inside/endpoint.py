"""The routes below ``/selvage/kld/``: an endpoint plugin of vLLM. EDGE: runs inside a vLLM API server.

``GET status`` describes the plugin. ``POST reduce`` scores prompts and returns a few numbers per position
against a reference file that this host can read. ``POST rows`` returns whole rows of log-probabilities. One
request is served at a time, with few of its prompts in the engine at once, which leaves room for users'
requests.
"""

from __future__ import annotations

import asyncio
import base64
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from .gate import gate, refusal
from .orders import (
    COLUMNS,
    LONGEST_BODY,
    MOST_POSITIONS,
    MOST_PROMPTS,
    PREFIX,
    PROTOCOL,
    CheckedFiles,
    ModelLimits,
    OrderRefusedError,
    object_of,
    reduce_orders,
    row_orders,
)

_IN_ENGINE = 8
_ENGINE_WITHIN_S = 60.0
_SERVED_WITHIN_S = 240.0


class KldPlugin:
    """The interface that vLLM's loader of endpoint plugins requires."""

    name = "selvage_kld"
    required_tasks = ("generate",)

    def __init__(self) -> None:
        self._gate = gate()
        self._files = CheckedFiles(self._gate.folder)
        self._turn = asyncio.Semaphore(1)
        self._engine: Any = None
        self._limits = ModelLimits(0, 0)

    def attach_router(self, app: Any) -> None:
        """Add the routes; every route checks the gate first."""
        app.add_route(f"{PREFIX}status", self._guarded(self._status), methods=["GET"])
        app.add_route(f"{PREFIX}reduce", self._guarded(self._reduce), methods=["POST"])
        app.add_route(f"{PREFIX}rows", self._guarded(self._rows), methods=["POST"])

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:  # noqa: ARG002 (vLLM's)
        """Keep the engine and the limits of its model."""
        self._engine = engine_client
        model = state.vllm_config.model_config
        self._limits = ModelLimits(int(model.max_model_len), int(model.get_vocab_size()))

    def _guarded(self, serve: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        from starlette.requests import Request
        from starlette.responses import JSONResponse

        async def guarded(request: Request) -> Any:
            reason = refusal(self._gate, request.client.host if request.client else None, request.headers)
            if reason:
                return JSONResponse({"refused": reason}, 403)
            try:
                async with asyncio.timeout(_SERVED_WITHIN_S), self._turn:
                    return await serve(request)
            except OrderRefusedError as problem:
                return JSONResponse({"refused": str(problem)}, 400)
            except TimeoutError:
                return JSONResponse({"refused": f"not done within {_SERVED_WITHIN_S:g} s"}, 503)
            except ExceptionGroup as problems:
                return JSONResponse({"refused": f"the engine failed: {problems.exceptions[0]}"}, 503)

        return guarded

    async def _status(self, request: Any) -> Any:  # noqa: ARG002 (a handler's signature)
        from starlette.responses import JSONResponse

        unfit = [each for each in await self._call("selvage_kld_ready") if each]
        told = {
            "protocol": PROTOCOL,
            "columns": list(COLUMNS),
            "vocabulary": self._limits.vocabulary,
            "tokens": self._limits.tokens,
            "folder": str(self._gate.folder),
            "most_prompts": MOST_PROMPTS,
            "most_positions": MOST_POSITIONS,
            "unfit": unfit[0] if unfit else "",
        }
        return JSONResponse(told)

    async def _reduce(self, request: Any) -> Any:
        body = object_of(await _body(request))
        orders = await asyncio.to_thread(reduce_orders, body, self._limits, self._files)
        return await self._scored(orders)

    async def _rows(self, request: Any) -> Any:
        return await self._scored(row_orders(object_of(await _body(request)), self._limits))

    async def _scored(self, orders: list[dict[str, Any]]) -> Any:
        """Raw numbers of all orders, concatenated in their order."""
        from starlette.responses import Response

        named = {f"selvage-kld-{uuid.uuid4().hex}": order for order in orders}
        began_at_s = time.perf_counter()
        found: dict[str, dict[str, str]] = {}
        try:
            for problem in await self._call("selvage_kld_expect", named):
                if problem:
                    raise OrderRefusedError(problem)
            await self._generate(named)
        finally:
            for part in await self._call("selvage_kld_take", list(named)):
                found |= {name: one for name, one in part.items() if name not in found or "error" not in one}
        errors = [found.get(name, {"error": "no worker scored it"}).get("error", "") for name in named]
        if any(errors):
            raise OrderRefusedError(next(filter(None, errors)))
        raw = b"".join(base64.b64decode(found[name]["values"]) for name in named)
        spent = {"x-selvage-engine-ms": f"{1000.0 * (time.perf_counter() - began_at_s):.1f}"}
        return Response(raw, media_type="application/octet-stream", headers=spent)

    async def _generate(self, named: dict[str, dict[str, Any]]) -> None:
        """Send every prompt through the engine, a few at a time; the worker captures the scores."""
        room = asyncio.Semaphore(_IN_ENGINE)

        async def one(name: str, ids: list[int]) -> None:
            from vllm import SamplingParams

            # Requests with prompt log-probabilities bypass the prefix cache, so all rows are computed.
            asked = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)
            async with room:
                async for _ in self._engine.generate({"prompt_token_ids": ids}, asked, name):
                    pass

        async with asyncio.TaskGroup() as group:
            for name, order in named.items():
                group.create_task(one(name, order["token_ids"]))

    async def _call(self, method: str, *args: Any) -> list[Any]:
        """The answers of all workers; OrderRefusedError if one fails, or the engine has no such method."""
        # The RPC itself gets no time limit: the engine would stop waiting for a late worker, and the late
        # answer would stay in its queue and be taken for the answer of the next call or step.
        call = self._engine.collective_rpc(method, None, args)
        try:
            answers = await asyncio.wait_for(call, _ENGINE_WITHIN_S)
        except TimeoutError:
            raise OrderRefusedError(f"no answer to {method} within {_ENGINE_WITHIN_S:g} s") from None
        except Exception as problem:  # vLLM re-raises a worker's exception as one of several types
            raise OrderRefusedError(f"the engine does not answer {method}: {problem}") from None
        return list(answers)


async def _body(request: Any) -> bytes:
    """The whole body; OrderRefusedError above ``LONGEST_BODY`` bytes."""
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > LONGEST_BODY:
            raise OrderRefusedError(f"a body of more than {LONGEST_BODY} bytes")
    return b"".join(parts)
