"""HTTP endpoint on loopback for sampled log-probabilities, for a client or gateway of this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from contracts.errors import MeasurementError
from live.bounded_http import monotonic_unix_s
from live.errors import LiveError
from live.observe.sampled import SampledInbox
from live.origins import LOOPBACK

PATH = "/v1/sampled"
#: Largest body, bytes; longest time for a client to send it, s.
MOST_BYTES, _LIMIT_S = 1 << 20, 5.0


@contextmanager
def serve_inbox(inbox: SampledInbox, port: int) -> Iterator[str]:
    """The URL to post to, for the duration of the block. port 0: any free one; LiveError if it is taken."""
    try:
        server = ThreadingHTTPServer((LOOPBACK, port), _handler(inbox))
    except OSError as error:
        reason = error.strerror or str(error)
        raise LiveError(
            f"sampled log-probabilities at {LOOPBACK}:{port}: {reason}; choose another --sampled-port"
        ) from None
    server.daemon_threads = True
    beat = threading.Thread(target=server.serve_forever, name="sampled")
    beat.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_port}{PATH}"
    finally:
        server.shutdown()
        server.server_close()
        beat.join()


def _handler(inbox: SampledInbox) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Handles one post. Nothing of a request is logged or repeated."""

        timeout = _LIMIT_S

        def do_POST(self) -> None:
            """Accept a post; status 204, or 400 with what was expected."""
            if self.path != PATH:
                return self._end(HTTPStatus.NOT_FOUND, f"post to {PATH}")
            length = self.headers.get("content-length", "")
            if not length.isdecimal() or len(length) > len(str(MOST_BYTES)) or int(length) > MOST_BYTES:
                return self._end(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {MOST_BYTES} bytes")
            try:
                inbox.post(self.rfile.read(int(length)), monotonic_unix_s())
            except MeasurementError as error:
                return self._end(HTTPStatus.BAD_REQUEST, str(error))
            return self._end(HTTPStatus.NO_CONTENT, "")

        def _end(self, status: HTTPStatus, told: str) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            self.wfile.write(told.encode())

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler
