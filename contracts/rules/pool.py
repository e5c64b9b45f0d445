"""Rules of pools."""

from __future__ import annotations

from collections.abc import Iterator

from contracts.documents.pool import POOL_GROUP, BackendRef, PoolKernel, PoolSpec
from contracts.errors import KeyPath
from contracts.rules.breach import Breach, repeated_names, unknown_name


def pool_breaches(spec: PoolSpec) -> Iterator[Breach]:
    """Broken rules of one pool, paths from its spec."""
    names = [kernel.name for kernel in spec.kernels]
    yield from repeated_names(names, ("kernels",), "name")
    for index, kernel in enumerate(spec.kernels):
        yield from _zones(kernel, ("kernels", index))
        yield from _servers(kernel, ("kernels", index))
        if kernel.backend is not None:
            yield from _backend(kernel.backend, ("kernels", index, "backend"))
    urls = [url for kernel in spec.kernels for url in kernel.servers or ()]
    yield from repeated_names(urls, ("kernels",), None)
    yield from _known_good(spec)
    yield from repeated_names([home.slice for home in spec.home], ("home",), "slice")
    servable = [kernel.name for kernel in spec.kernels if kernel.role != "reference"]
    for index, home in enumerate(spec.home):
        yield from unknown_name(home.kernel, servable, ("home", index, "kernel"), "pool's serving kernels")


def _zones(kernel: PoolKernel, path: KeyPath) -> Iterator[Breach]:
    if kernel.zone is not None and kernel.zones is not None:
        hint = "keep zones and remove zone, or the other way round"
        yield Breach(path=(*path, "zones"), expected="zone or zones", actual="both", next_step=hint)
    if kernel.zones is not None and len(kernel.zones) != kernel.replicas:
        yield Breach(
            path=(*path, "zones"),
            expected=f"one zone per replica ({kernel.replicas})",
            actual=f"{len(kernel.zones)} zones",
            next_step="name a zone for each replica, or write one zone: for all",
        )


def _servers(kernel: PoolKernel, path: KeyPath) -> Iterator[Breach]:
    if kernel.servers is not None and len(kernel.servers) != kernel.replicas:
        yield Breach(
            path=(*path, "servers"),
            expected=f"one server per replica ({kernel.replicas})",
            actual=f"{len(kernel.servers)} servers",
            next_step="state as many replicas as there are servers",
        )


def _backend(backend: BackendRef, path: KeyPath) -> Iterator[Breach]:
    """Breaches unless an InferencePool has its API group and no port, and a Service a port and no group."""
    is_pool = backend.kind == "InferencePool"
    group = POOL_GROUP if is_pool else ""
    if backend.group != group:
        yield Breach(
            path=(*path, "group"),
            expected=f"group {group!r} for kind {backend.kind}",
            actual=repr(backend.group),
            next_step=f"write group: {POOL_GROUP} with kind: InferencePool, and neither for a Service",
        )
    if is_pool and backend.port is not None:
        hint = "remove it; the target port of the InferencePool counts"
        yield Breach(path=(*path, "port"), expected="no port", actual=str(backend.port), next_step=hint)
    if not is_pool and backend.port is None:
        hint = "name the port of the Service"
        yield Breach(path=(*path, "port"), expected="a port", actual="none", next_step=hint)


def _known_good(spec: PoolSpec) -> Iterator[Breach]:
    found = [kernel.name for kernel in spec.kernels if kernel.role == "known_good"]
    if len(found) != 1:
        yield Breach(
            path=("kernels",),
            expected="exactly one kernel with role: known_good",
            actual=", ".join(found) or "none",
            next_step="it is where a fallback goes; mark the certified one",
        )
