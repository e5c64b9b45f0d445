"""Services, EndpointSlices, pods and InferencePools of a namespace, listed once and then watched.

One connection per kind, listed page by page. A watch that ends is continued from its last version; one that
failed or fell behind (410 Gone) starts with a new listing. While any kind is out of date, ``places`` is None
and callers read from the server. InferencePools are watched from the first request for one: some clusters do
not have that kind, and a namespace without them needs no permission to read them.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from typing import Any

from kubernetes import client
from kubernetes.watch.watch import iter_resp_lines

from contracts.documents.pool import POOL_GROUP
from k8s.api.pages import listed
from k8s.operator.objects import Manifest
from k8s.operator.pods.slots import BUILT_IN, PODS, POOL_VERSION, POOLS, SERVICES, SLICES, Places, read_of

_LOG = logging.getLogger(__name__)
#: Duration of one watch; the next continues from its version. This limits how long a dead connection is used.
WINDOW_S = 10
#: A kind whose last answer is older than this is treated as unknown.
STALE_S = 2.0 * WINDOW_S
#: Wait after a failure, s.
PAUSE_S = 1.0


class _Gone(Exception):
    """The resourceVersion of a watch has expired: list again."""


class NamespaceWatch:
    """Watches one namespace in its own threads; use as a context manager."""

    def __init__(self, api: client.ApiClient, namespace: str, timeout_s: float = 5.0) -> None:
        core = client.CoreV1Api(api)
        self._methods: dict[str, Callable[..., Any]] = {
            SERVICES: core.list_namespaced_service,
            SLICES: client.DiscoveryV1Api(api).list_namespaced_endpoint_slice,
            PODS: core.list_namespaced_pod,
            POOLS: partial(
                client.CustomObjectsApi(api).list_namespaced_custom_object,
                POOL_GROUP,
                POOL_VERSION,
                plural=POOLS,
            ),
        }
        self._namespace, self._timeout_s = namespace, timeout_s
        self._stop = threading.Event()
        self._places = Places()
        self._lock = threading.Lock()
        self._received_at_s = dict.fromkeys(BUILT_IN, float("-inf"))
        self._told: dict[str, str] = {}
        self.listings = 0
        """Listings so far, over all kinds."""

    def __enter__(self) -> NamespaceWatch:
        """Start watching."""
        for kind in BUILT_IN:
            self._start(kind)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop watching; an open connection ends with its window."""
        self._stop.set()

    def want_pools(self) -> None:
        """Watch InferencePools from now on."""
        with self._lock:
            if POOLS in self._received_at_s:
                return
            self._received_at_s = {**self._received_at_s, POOLS: time.monotonic()}
        self._start(POOLS)

    def _start(self, kind: str) -> None:
        threading.Thread(target=self._run, args=(kind,), name=f"watch-{kind}", daemon=True).start()

    @property
    def places(self) -> Places | None:
        """The cache; None if a kind was not listed yet or its last answer is too old."""
        touched = min(self._received_at_s.values()) >= time.monotonic() - STALE_S
        return self._places if touched else None

    def _run(self, kind: str) -> None:
        version = ""
        while not self._stop.is_set():
            try:
                version = self._window(kind, version) if version else self._list(kind)
                with self._lock:  # want_pools replaces the dictionary, which could lose this timestamp
                    self._received_at_s[kind] = time.monotonic()
                self._told.pop(kind, None)
            except _Gone:
                version = ""
                self._stop.wait(PAUSE_S)  # avoids listings without a pause if every watch ends like this
            except Exception as error:  # whatever the server answered, list this kind again
                version = ""
                self._tell(kind, error)
                self._stop.wait(PAUSE_S)

    def _list(self, kind: str) -> str:
        """List all of ``kind``; returns the resourceVersion from which to watch."""
        try:
            found = listed(partial(self._get, kind), partial(read_of, kind))
        except client.ApiException as error:
            if (kind, error.status) != (POOLS, HTTPStatus.NOT_FOUND):
                raise
            self._places.renew(kind, [])  # a kind that the cluster lacks
            self._stop.wait(PAUSE_S)
            return ""
        self._places.renew(kind, found.objects)
        self.listings += 1
        return found.version

    def _window(self, kind: str, version: str) -> str:
        """Watch ``kind`` for one window; returns the last resourceVersion."""
        asked = {"resource_version": version, "allow_watch_bookmarks": True, "timeout_seconds": WINDOW_S}
        try:
            answer = self._get(kind, watch=True, **asked)
        except client.ApiException as error:
            raise _Gone if error.status == HTTPStatus.GONE else error from None
        try:
            for event in _events(answer):
                if self._stop.is_set():
                    break
                version = self._heed(kind, event)
        finally:
            answer.close()
        return version

    def _heed(self, kind: str, event: dict[str, Any]) -> str:
        """Apply one event; returns the resourceVersion of its object."""
        what, found = event["type"], event["object"]
        if what == "ERROR":
            raise _Gone
        if what == "DELETED":
            self._places.drop(kind, str(found["metadata"]["name"]))
        elif what != "BOOKMARK":
            self._places.put(kind, found)
        return str(found["metadata"]["resourceVersion"])

    def _get(self, kind: str, **query: Any) -> Any:
        """The unread response to a listing or a watch."""
        limits_s = self._timeout_s, self._timeout_s + WINDOW_S
        asked = {**query, "_preload_content": False, "_request_timeout": limits_s}
        return self._methods[kind](self._namespace, **asked)

    def _tell(self, kind: str, error: Exception) -> None:
        """Log a failure, once while it lasts."""
        message = f"{getattr(error, 'status', '') or ''} {type(error).__name__}".strip()
        if self._told.get(kind) != message:
            _LOG.warning("%s are not watched (%s): they are listed at every tick meanwhile", kind, message)
            self._told[kind] = message


def _events(answer: Any) -> Iterator[Manifest]:
    return (json.loads(line) for line in iter_resp_lines(answer) if line)
