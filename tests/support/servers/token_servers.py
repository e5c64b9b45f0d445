"""Small HTTP servers that answer as vLLM does: metrics, models, and log-probabilities of a prompt."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from live.measure.backends.openai_backend import TOP_K

MODEL = "chat-model"
#: Probability of the first token, and of all the other returned ones together.
_FIRST, _OTHERS = 0.5, 0.4


@dataclass
class TokenServer:
    """The servers of one kernel, one on each loopback address, all at one port.

    shift: nats by which the first token of every position is too likely. key: required of every
    request but a scrape, "" for none. asked: completions so far, by loopback address.
    """

    key: str = ""
    shift: float = 0.0
    asked: dict[str, int] = field(default_factory=dict)
    refused: int = 0
    port: int = 0

    def row(self, own: int) -> dict[str, dict[str, float]]:
        """Log-probabilities of one position, whose prompt goes on with ``own``."""
        first = _FIRST * math.exp(self.shift)
        scale = 1.0 / (first + 1.0 - _FIRST)
        chances = [first * scale, *[_OTHERS / (TOP_K - 1) * scale] * (TOP_K - 1)]
        found = {str(token): {"logprob": math.log(chance)} for token, chance in enumerate(chances)}
        return {str(own): {"logprob": -9.0}} | found

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request for log-probabilities."""
        rows = [None, *(self.row(token) for token in body["prompt"][1:])]
        return {"choices": [{"text": "x", "prompt_logprobs": rows}], "system_fingerprint": "build-1"}

    def metrics(self) -> str:
        """Counters that keep growing: no request is ever stuck."""
        total = sum(self.asked.values())
        return (
            "process_start_time_seconds 1.0\nvllm:num_requests_running 0.0\nvllm:num_requests_waiting 0.0\n"
            f"vllm:kv_cache_usage_perc 0.1\nvllm:request_success_total {total}\n"
        )


class _Handler(BaseHTTPRequestHandler):
    """Requests to ``served``, which a subclass for each kernel sets."""

    served: TokenServer

    def do_GET(self) -> None:
        """Metrics without a key, models with it."""
        if self.path == "/metrics":
            self._say(200, self.served.metrics().encode())
        elif self._known():
            self._say(200, json.dumps({"data": [{"id": MODEL, "max_model_len": 2048}]}).encode())

    def do_POST(self) -> None:
        """A completion."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._known():
            address, asked = self.connection.getsockname()[0], self.served.asked
            asked[address] = asked.get(address, 0) + 1
            self._say(200, json.dumps(self.served.completion(body)).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _known(self) -> bool:
        served = self.served
        if not served.key or self.headers.get("Authorization") == f"Bearer {served.key}":
            return True
        served.refused += 1
        self._say(401, b"{}")
        return False

    def _say(self, code: int, content: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def token_server(key: str = "") -> Iterator[TokenServer]:
    """Servers of one kernel while the block runs."""
    found = TokenServer(key=key)
    running = ThreadingHTTPServer(("0.0.0.0", 0), type("Handler", (_Handler,), {"served": found}))
    found.port = running.server_port
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        running.shutdown()
        running.server_close()
        thread.join()
