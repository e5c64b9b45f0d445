"""Scrapes many servers concurrently, each within its time limit; of texts with a known layout only the
numbers are parsed.

A server that does not answer is unknown. A server that was late is from then on scraped by separate threads,
until it answers in time. So however many servers of whichever pool hang, the others are scraped as usual.

The layout of a text is everything except the numbers: each line's sample name and, for lines that are read,
everything before the value. If a text has the layout of the server's previous text, only the values are cut
out. Every other text is parsed, and refused, as a whole (``live.observe.metrics``). Both ways give equal
readings for every text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from weakref import WeakValueDictionary

import httpx
import numpy as np
from numpy.typing import NDArray

from live.bounded_http import monotonic_unix_s, whole_answer
from live.errors import LiveError
from live.exposition import read_samples
from live.observe.metrics import EngineReading, ReadFields, fields_of, is_read, values_of
from live.observe.readings_pass import ANYTHING, NOTHING, NUMBER, OTHER, Lines, walk
from live.ports import Unanswered

#: Most servers with a remembered layout; beyond it, all layouts are forgotten and read again.
MOST_SERVERS = 20_000
#: Head of a line that is followed by the value only; label values that contain braces are always parsed.
_HEAD = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(\{[^{}#]*\})? ")
#: Values that ``float`` and the format's parser read alike.
_NUMBER = re.compile(rb"[-+.0-9eE]+")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Layout:
    """The parts of a text that do not change from scrape to scrape."""

    lines: Lines
    count: int
    """Number of lines that are read."""
    fields: ReadFields

    def values(self, text: str) -> NDArray[np.float64] | None:
        """Values of the lines that are read; None if the text has another layout."""
        told = _bytes(text)
        values, rest = np.empty(self.count), np.empty((self.count, 3), dtype=np.int64)
        left = walk(np.frombuffer(told, dtype=np.uint8), self.lines, values, rest)
        if left == OTHER:
            return None
        return values if left == 0 or _completed(values, rest[:left].tolist(), told) else None


def _completed(values: NDArray[np.float64], rest: Sequence[Sequence[int]], told: bytes) -> bool:
    """Parse the ``rest`` of the numbers with ``float``: index in ``values``, begin and end in ``told``.
    Returns whether all are finite.
    """
    for at, begin, end in rest:
        if not _NUMBER.fullmatch(told, begin, end):
            return False
        try:
            values[at] = found = float(told[begin:end])
        except ValueError:
            return False
        if not math.isfinite(found):
            return False
    return True


def _bytes(text: str) -> bytes:
    """``text`` as bytes, also if it is not valid Unicode; different texts give different bytes."""
    return text.encode("utf-8", "surrogatepass")


class LayoutReader:
    """Reads texts of many servers, from any thread; servers with equal layouts share one."""

    def __init__(self) -> None:
        self._of_server: dict[str, Layout] = {}
        self._known: WeakValueDictionary[tuple[str, ...], Layout] = WeakValueDictionary()

    def read(self, server: str, text: str, read_at_s: float) -> EngineReading:
        """The reading in ``text`` of ``server``; LiveError if it is no Prometheus exposition."""
        layout = self._of_server.get(server)
        values = None if layout is None else layout.values(text)
        if layout is not None and values is not None:
            return layout.fields.reading(values, read_at_s)
        lines = text.split("\n")
        read = [at for at, line in enumerate(lines) if is_read(line)]
        samples = read_samples("\n".join([lines[at] for at in read]) or text)
        fields = fields_of(samples)
        values = values_of(samples)
        self._remember(server, lines, read, fields, values)
        return fields.reading(values, read_at_s)

    def _remember(
        self,
        server: str,
        lines: Sequence[str],
        read: Sequence[int],
        fields: ReadFields,
        values: NDArray[np.float64],
    ) -> None:
        """Keep the layout of ``lines`` for the server's next text, if it reproduces the same ``values``."""
        if len(self._of_server) >= MOST_SERVERS:
            self._of_server.clear()
        heads = _heads(lines, read)
        found = None if heads is None else self._known.get(heads) or _layout(lines, read, heads, fields)
        told = None if found is None else found.values("\n".join(lines))
        if heads is None or found is None or told is None or not np.array_equal(told, values):
            self._of_server.pop(server, None)
            return
        self._of_server[server] = self._known.setdefault(heads, found)


def _heads(lines: Sequence[str], read: Sequence[int]) -> tuple[str, ...] | None:
    """The required beginning of each line: everything before the value for those in ``read``, else the name.

    None if the values can only be found by a full parse.
    """
    heads = [_name(line) for line in lines]
    for at in read:
        heads[at] = _before_last(lines[at])
    return tuple(heads) if read and all(_HEAD.fullmatch(heads[at]) for at in read) else None


def _layout(lines: Sequence[str], read: Sequence[int], heads: Sequence[str], fields: ReadFields) -> Layout:
    kinds = np.array(
        [NOTHING if line == head else ANYTHING for line, head in zip(lines, heads, strict=True)],
        dtype=np.int8,
    )
    kinds[list(read)] = NUMBER
    usual = [_bytes(max(_before_last(line), head, key=len)) for line, head in zip(lines, heads, strict=True)]
    found = Lines(
        heads=np.frombuffer(b"".join(usual), dtype=np.uint8),
        head_ends=np.cumsum([len(one) for one in usual], dtype=np.int64),
        asked=np.array([len(_bytes(head)) for head in heads], dtype=np.int64),
        kinds=kinds,
    )
    return Layout(lines=found, count=len(read), fields=fields)


def _before_last(line: str) -> str:
    """``line`` up to its last space; this part seldom changes."""
    return line[: line.rfind(" ") + 1]


def _name(line: str) -> str:
    """The name that ``line`` begins with and the character that ends it."""
    return line[: len(line.partition("{")[0].partition(" ")[0]) + 1]


#: The requested format; other formats of an answer are read as well.
_ACCEPT = {"accept": "text/plain;version=0.0.4, */*;q=0.1"}
#: Number of servers that are scraped concurrently.
AT_ONCE = 16


class Scraper:
    """Reads ``/metrics`` of servers by URL; use as a context."""

    def __init__(self, timeout_s: float = 1.0, client: httpx.Client | None = None) -> None:
        """client: an HTTP client with keys and certificates."""
        self._timeout_s = timeout_s
        self._http = client or httpx.Client()
        self._reader = LayoutReader()
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="scrape")
        self._apart = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="scrape-late")
        self._late: set[str] = set()
        """URLs of servers with a last answer that was late."""
        self.failed: Mapping[str, Unanswered] = {}
        """Replica -> why its last scrapes failed, for replicas with a failed last scrape."""

    def __enter__(self) -> Scraper:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close connections and threads."""
        self.close()

    def close(self) -> None:
        """Close connections and threads; repeated calls have no effect."""
        self._threads.shutdown(cancel_futures=True)
        self._apart.shutdown(cancel_futures=True)
        self._http.close()

    def scrape(self, urls: Mapping[str, str]) -> dict[str, EngineReading]:
        """Replica -> its reading, for those in ``urls`` (replica -> base URL) that answered in time."""
        asked = {
            replica: (self._apart if url in self._late else self._threads).submit(self._read, url)
            for replica, url in urls.items()
        }
        found = {replica: one.result() for replica, one in asked.items()}
        self.failed = {
            replica: Unanswered(why=why, times=1 + self._times(replica))
            for replica, why in found.items()
            if isinstance(why, str)
        }
        return {replica: one for replica, one in found.items() if not isinstance(one, str)}

    def _times(self, replica: str) -> int:
        """Number of failed scrapes in a row so far."""
        before = self.failed.get(replica)
        return before.times if before else 0

    def _read(self, url: str) -> EngineReading | str:
        """The reading, or the reason why there is none."""
        try:
            found = self._answered(url)
        except httpx.TimeoutException:
            if len(self._late) >= MOST_SERVERS:  # most are addresses of pods that no longer exist
                self._late.clear()
            self._late.add(url)
            return f"no whole answer within {self._timeout_s:g} s"
        self._late.discard(url)
        return found

    def _answered(self, url: str) -> EngineReading | str:
        """As ``_read``; httpx.TimeoutException if the answer is late."""
        try:
            answer = whole_answer(self._http, "GET", f"{url}/metrics", self._timeout_s, headers=_ACCEPT)
            if answer.status_code != httpx.codes.OK:
                return f"HTTP {answer.status_code}"
            return self._reader.read(url, answer.text, monotonic_unix_s())
        except httpx.TimeoutException:
            raise
        except LiveError:
            return "the answer is no Prometheus text"
        except Exception as error:  # whatever one server answers, the others are still read
            return type(error).__name__
