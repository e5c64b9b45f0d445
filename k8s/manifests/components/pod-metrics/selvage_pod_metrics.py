"""What the operator says of a pod, in the metrics of that pod's own vLLM server.

ASGI middleware for an unmodified image: ``--middleware=selvage_pod_metrics.PodMetrics``. The operator writes
the labels of a pod (``--advise``), the kubelet shows them as a file (downward API), and here they become one
gauge behind the server's own metrics, because pickers like llm-d's read a pod's metrics and nothing else.
Standard library alone; it answers nothing, changes no request, and adds nothing where the file is missing.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

#: Where the component mounts the pod's labels.
LABELS = Path("/etc/selvage-pod/labels")
METRIC = "selvage_contract_breach_level"
_KIND = f"""\
# HELP {METRIC} What is known of this pod: 0 kept, 1 guarded or last resort, 2 broken or quarantined.
# TYPE {METRIC} gauge
"""
_LEVELS = {"kept": 0, "guarded": 1, "last-resort": 1, "broken": 2}
_LABEL = re.compile(r'^(selvage\.dev/(?:contract|in-rotation))="([^"]*)"$', re.MULTILINE)
#: Headers that would make the server compress its metrics or choose another format.
_NEGOTIATED = (b"accept", b"accept-encoding")


def breach_level(labels: str) -> int | None:
    """Level from the text of the labels' file; None where the operator says nothing or knows nothing."""
    found = dict(_LABEL.findall(labels))
    if found.get("selvage.dev/in-rotation") == "false" and found.get("selvage.dev/contract") != "last-resort":
        return 2
    return _LEVELS.get(found.get("selvage.dev/contract", ""))


def sample(file: Path) -> bytes:
    """The gauge in Prometheus' text format, or nothing where the level is not known."""
    try:
        level = breach_level(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return b""
    return b"" if level is None else f"{_KIND}{METRIC} {level}\n".encode()


class PodMetrics:
    """The application, with one more gauge at the end of ``/metrics``."""

    def __init__(self, app: App, labels: Path = LABELS) -> None:
        self._app, self._labels = app, labels

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass everything on; an answer of ``/metrics`` gets the gauge behind its last byte."""
        if scope["type"] != "http" or scope["path"].rstrip("/").rpartition("/")[2] != "metrics":
            await self._app(scope, receive, send)
            return
        kept = [pair for pair in scope["headers"] if pair[0].lower() not in _NEGOTIATED]
        await self._app({**scope, "headers": kept}, receive, _Longer(send, sample(self._labels)))


class _Longer:
    """A ``send`` that puts ``more`` behind a successful answer."""

    def __init__(self, send: Send, more: bytes) -> None:
        self._send, self._more = send, more

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if message["status"] != 200:
                self._more = b""
            message = {**message, "headers": [self._sized(pair) for pair in message.get("headers", ())]}
        elif not message.get("more_body"):
            message = {**message, "body": message.get("body", b"") + self._more}
        await self._send(message)

    def _sized(self, pair: Header) -> Header:
        if pair[0].lower() != b"content-length":
            return pair
        return pair[0], str(int(pair[1]) + len(self._more)).encode()
