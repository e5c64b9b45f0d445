"""Scrape many servers at once, each within its time limit; a server that does not answer is unknown."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import httpx

from live.errors import LiveError
from live.observe.layouts import LayoutReader
from live.observe.metrics import EngineReading

#: Servers that are scraped at the same time.
AT_ONCE = 16


class Scraper:
    """Reads ``/metrics`` of servers by URL; use as a context."""

    def __init__(self, timeout_s: float = 1.0, client: httpx.Client | None = None) -> None:
        """client: with keys and certificates."""
        self._timeout_s = timeout_s
        self._http = client or httpx.Client()
        self._reader = LayoutReader()
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="scrape")

    def __enter__(self) -> Scraper:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close connections and threads."""
        self.close()

    def close(self) -> None:
        """Close connections and threads; once is enough."""
        self._threads.shutdown(cancel_futures=True)
        self._http.close()

    def scrape(self, urls: Mapping[str, str]) -> dict[str, EngineReading]:
        """Replica -> its reading, of those in ``urls`` (replica -> base URL) that answered in time."""
        found = zip(urls, self._threads.map(self._read, urls.values()), strict=True)
        return {replica: reading for replica, reading in found if reading is not None}

    def _read(self, url: str) -> EngineReading | None:
        try:
            answer = self._http.get(f"{url}/metrics", timeout=self._timeout_s)
            if answer.status_code != httpx.codes.OK:
                return None
            return self._reader.read(url, answer.text, time.time())
        except (httpx.HTTPError, LiveError):
            return None
