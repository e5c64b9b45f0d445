"""Every revision of a route on a real API server, and the law that none leaves a slice without a kernel."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kubernetes import client, watch

from tests.support.cluster.cluster_worlds import Bench


@contextmanager
def every_revision(bench: Bench) -> Iterator[list[dict[str, Any]]]:
    """Every revision of the route from here on, up to the end of the block."""
    seen: list[dict[str, Any]] = []
    begin = bench.route()["metadata"]["resourceVersion"]
    watcher = watch.Watch()
    ended = threading.Event()

    def follow() -> None:
        arguments = ("gateway.networking.k8s.io", "v1", bench.namespace, "httproutes")
        while not ended.is_set():
            stream = watcher.stream(
                client.CustomObjectsApi(bench.api).list_namespaced_custom_object,
                *arguments,
                resource_version=begin if not seen else seen[-1]["metadata"]["resourceVersion"],
                timeout_seconds=1,
            )
            seen.extend(event["object"] for event in stream)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield seen
        bench.edit_route(lambda found: found["metadata"].update(labels={"last": "revision"}))
        for _ in range(300):
            if seen and seen[-1]["metadata"].get("labels") == {"last": "revision"}:
                break
            ended.wait(0.1)
    finally:
        ended.set()
        thread.join()


def assert_never_empty(seen: list[dict[str, Any]]) -> None:
    """Every rule of every revision has a kernel with a positive weight."""
    assert seen, "the watch saw nothing"
    assert seen[-1]["metadata"].get("labels") == {"last": "revision"}, "the watch missed the end"
    for found in seen:
        for rule in found["spec"]["rules"]:
            kernels = {one["name"]: one.get("weight", 1) for one in rule["backendRefs"]}
            kernels.pop("selvage-refuse", None)
            assert max(kernels.values()) > 0, (found["metadata"]["resourceVersion"], rule)
