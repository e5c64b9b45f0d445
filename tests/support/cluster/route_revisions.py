"""Every revision of routes on a real API server, and the law that none leaves a slice without a kernel."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kubernetes import client, watch
from urllib3.exceptions import HTTPError

from k8s.routes.writer import WRITTEN
from tests.support.cluster.cluster_worlds import Bench
from tests.support.waiting import until

Object = dict[str, Any]
_ROUTES = ("gateway.networking.k8s.io", "v1")
_GONE, _BUSY = 410, 429
#: Label that the last revision gets, and name of a route that is made for it where there may be none.
_LAST = {"last": "revision"}
_END = "tests-last-revision"
#: Seconds until the last revision must be seen.
_PATIENCE_S = 120.0


class _Follower(threading.Thread):
    """Reads every revision of the routes of one namespace, also when the server ends and begins again."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        super().__init__(daemon=True)
        self._custom, self._place = client.CustomObjectsApi(api), (*_ROUTES, namespace, "httproutes")
        self.seen: list[Object] = []
        self.ended, self.last = threading.Event(), threading.Event()
        first: list[Object] = []
        until(lambda: self._tried(first))
        self._version = str(first[0]["metadata"]["resourceVersion"])

    def run(self) -> None:
        """Follow until the last revision was seen, or nobody waits for it any more."""
        while not (self.ended.is_set() or self.last.is_set()):
            try:
                self._window()
            except client.ApiException as error:
                self._version = "" if error.status == _GONE else self._version
                self.ended.wait(0.1)
            except (HTTPError, OSError):
                self.ended.wait(0.1)

    def _window(self) -> None:
        if not self._version:
            found = self._listed()
            for one in found["items"]:
                self._note(one)
            self._version = str(found["metadata"]["resourceVersion"])
        arguments = {"resource_version": self._version, "timeout_seconds": 1}
        stream = watch.Watch().stream(self._custom.list_namespaced_custom_object, *self._place, **arguments)
        for event in stream:
            self._version = str(event["object"]["metadata"]["resourceVersion"])
            if event["type"] != "DELETED":
                self._note(event["object"])

    def _note(self, found: Object) -> None:
        if found["metadata"]["name"] != _END:
            self.seen.append(found)
        if found["metadata"].get("labels") == _LAST:
            self.last.set()

    def _tried(self, found: list[Object]) -> bool:
        """Whether the server lists the routes into ``found``, or is not ready for it yet, after its start."""
        try:
            found.append(self._listed())
        except client.ApiException as error:
            if error.status != _BUSY:
                raise
        return bool(found)

    def _listed(self) -> Object:
        found: Object = self._custom.list_namespaced_custom_object(*self._place)
        return found


@contextmanager
def _followed(api: client.ApiClient, namespace: str, end: Callable[[], object]) -> Iterator[list[Object]]:
    """Every revision of the namespace's routes, up to the one that ``end`` makes."""
    follower = _Follower(api, namespace)
    follower.start()
    try:
        yield follower.seen
        end()
        assert follower.last.wait(_PATIENCE_S), "the watch missed the end"
    finally:
        follower.ended.set()
        follower.join()


@contextmanager
def every_revision(bench: Bench) -> Iterator[list[Object]]:
    """Every revision of the route from here on, up to the end of the block."""

    def end() -> None:
        bench.edit_route(lambda found: found["metadata"].update(labels=dict(_LAST)))

    with _followed(bench.api, bench.namespace, end) as seen:
        yield seen


@contextmanager
def whole_routes(api: client.ApiClient, namespace: str) -> Iterator[None]:
    """No revision that the operator wrote of any route of the namespace leaves a slice without a kernel."""
    custom = client.CustomObjectsApi(api)

    def end() -> None:
        body = {
            "apiVersion": "/".join(_ROUTES),
            "kind": "HTTPRoute",
            "metadata": {"name": _END, "labels": dict(_LAST)},
            "spec": {},
        }
        custom.create_namespaced_custom_object(*_ROUTES, namespace, "httproutes", body)

    with _followed(api, namespace, end) as seen:
        yield
    custom.delete_namespaced_custom_object(*_ROUTES, namespace, "httproutes", _END)
    _assert_whole([one for one in seen if WRITTEN in one["metadata"].get("annotations", {})])


def assert_never_empty(seen: list[Object]) -> None:
    """Every rule of every revision has a kernel with a positive weight, and no revision was missed."""
    assert seen, "the watch saw nothing"
    _assert_whole(seen)


def _assert_whole(seen: list[Object]) -> None:
    generations: dict[str, int] = {}
    for found in seen:
        uid, now = found["metadata"]["uid"], found["metadata"]["generation"]
        assert now - generations.get(uid, now) in (0, 1), (uid, generations[uid], now)
        generations[uid] = now
        for rule in found["spec"]["rules"]:
            kernels = [one.get("weight", 1) for one in rule["backendRefs"] if one["name"] != "selvage-refuse"]
            assert max(kernels) > 0, (found["metadata"]["resourceVersion"], rule)
