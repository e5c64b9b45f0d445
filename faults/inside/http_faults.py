"""What each HTTP fault does to one request of the server's clients."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from .asgi import App, CutStream, EditedAnswer, Receive, Scope, Send, send_json
from .crossing import Crossing
from .document import FaultSpec

_SERVED = "/v1/"
_METRICS = "/metrics"
#: Kinds that strike some answers only: those are counted when it is done.
_COUNTED_WHEN_DONE = ("crossed_answers", "cut_json", "cut_stream")
_TRACE_FIELDS = ("system_fingerprint", "usage")


class HttpFault:
    """One fault in force on the HTTP side; ``hits`` counts the requests it struck."""

    def __init__(self, spec: FaultSpec) -> None:
        self.spec = spec
        self.hits = 0
        self._seen = 0
        self._crossing = Crossing()

    def concerns(self, path: str) -> bool:
        """True for the paths that this kind acts on."""
        wanted = _METRICS if self.spec.kind == "telemetry_loss" else _SERVED
        return path.startswith(wanted)

    def strikes(self) -> bool:
        """Whether the next request is struck: the share ``ratio`` of all, evenly and without chance."""
        self._seen += 1
        struck = math.floor(self._seen * self._ratio) > math.floor((self._seen - 1) * self._ratio)
        self.hits += struck and self.spec.kind not in _COUNTED_WHEN_DONE
        return struck

    @property
    def _ratio(self) -> float:
        by_dose = self.spec.kind in ("http_errors", "trace_fields_missing", "cut_json", "cut_stream")
        return 1.0 if self.spec.dose is None or not by_dose else self.spec.dose

    async def serve(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one struck request in place of ``app``."""
        kind = self.spec.kind
        if kind in ("http_errors", "telemetry_loss"):
            status = int(self.spec.number("status", 503))
            await send_json(send, status, {"error": {"message": "injected fault", "code": status}})
        elif kind == "crossed_answers":
            await self._crossing.run(app, scope, receive, send)
            self.hits = self._crossing.crossed  # a request that met no partner got its own answer
        else:
            if kind == "latency":
                await asyncio.sleep((500.0 if self.spec.dose is None else self.spec.dose) / 1000.0)
            await self._through(app, scope, receive, self._edited(send))

    async def _through(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve by ``app``, and count what ``send`` cut: a stream has no whole answer, and the reverse."""
        try:
            await app(scope, receive, send)
        finally:
            if isinstance(send, EditedAnswer | CutStream):
                self.hits += send.cuts

    def _edited(self, send: Send) -> Send:
        kind = self.spec.kind
        if kind == "cut_stream":
            return CutStream(send, int(self.spec.number("events", 2)))
        if kind == "cut_json":
            return EditedAnswer(send, cut=True)
        edits = {"trace_fields_missing": self._without_fields, "wrong_fingerprint": _with_other_fingerprint}
        return EditedAnswer(send, edits[kind]) if kind in edits else send

    def _without_fields(self, answer: dict[str, Any]) -> dict[str, Any]:
        dropped = tuple(self.spec.live.get("fields") or _TRACE_FIELDS)
        kept = {key: value for key, value in answer.items() if key not in dropped}
        choices = kept.get("choices")
        if isinstance(choices, list):
            kept["choices"] = [{k: v for k, v in choice.items() if k not in dropped} for choice in choices]
        return kept


def _with_other_fingerprint(answer: dict[str, Any]) -> dict[str, Any]:
    return answer | ({"system_fingerprint": "another-build"} if "system_fingerprint" in answer else {})
