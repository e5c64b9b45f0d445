"""Server-sent events as servers stream them.

A line ends at a line feed and nowhere else: JSON strings may hold other characters at which text is commonly
split (U+0085, U+2028, form feeds), and models do say them.
"""

from __future__ import annotations

from collections.abc import Iterator

import httpx

from contracts.errors import MeasurementError

_DATA, _DONE = b"data:", b"[DONE]"
#: Bytes of one event: rows of 20 log-probabilities of a few thousand tokens fit.
MOST_BYTES = 16_000_000


def payloads(answer: httpx.Response) -> Iterator[bytes]:
    """What every event of ``answer`` carries, up to the one that says it is done.

    Raises MeasurementError for an event of more than ``MOST_BYTES``, httpx.HTTPError where the line breaks.
    """
    rest = b""
    for part in answer.iter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            data = line.removeprefix(_DATA).strip()
            if data == _DONE:
                return
            if line.startswith(_DATA):
                yield data
        if len(rest) > MOST_BYTES:
            raise MeasurementError(f"an event of the stream has more than {MOST_BYTES} bytes")
