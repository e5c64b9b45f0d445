"""The metrics endpoint of a server for the operator's scrapes, on every loopback address."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

METRICS = (
    "process_start_time_seconds 1.0\nvllm:num_requests_running 0.0\nvllm:num_requests_waiting 0.0\n"
    "vllm:kv_cache_usage_perc 0.1\nvllm:request_success_total 7.0\n"
)


class Server(BaseHTTPRequestHandler):
    """The metrics endpoint of a vLLM server."""

    def do_GET(self) -> None:
        """Answer /metrics."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(METRICS.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def scraped_server() -> Iterator[int]:
    """A server on every loopback address; its port."""
    server = ThreadingHTTPServer(("0.0.0.0", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
