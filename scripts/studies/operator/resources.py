"""Contracts, pools and policies of made-up sizes, as an API server returns them."""

from __future__ import annotations

from dataclasses import dataclass

from contracts.documents import KernelContract
from contracts.loading.loader import load_as
from contracts.loading.shipped import LIBRARY, SERVING_POOL, SHIPPED_META
from contracts.loading.uris import resolve_uri
from k8s.operator.objects import Manifest, Resources
from k8s.resources.kinds import GROUP, VERSION, object_of

NAMESPACE = "bench"
_PROFILE = f"{LIBRARY}profiles/bf16.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSize:
    """Size of one pool."""

    kernels: int
    replicas: int
    """Of each kernel."""
    slices: int


def resources_of(pools: int, shape: PoolSize) -> Resources:
    """``pools`` pools, each with its contract and its policy."""
    names = [f"pool-{n}" for n in range(pools)]
    return Resources(
        contracts={name: _contract(name, shape) for name in names},
        pools={name: _pool(name, shape) for name in names},
        policies={name: _policy(name) for name in names},
    )


def route_of(policy: str) -> Manifest:
    """A route handed over to ``policy``."""
    annotations = {"selvage.dev/route-policy": f"{NAMESPACE}/{policy}"}
    return {"metadata": {"name": policy, "annotations": annotations}, "spec": {"rules": []}}


def _object(kind: str, name: str, spec: Manifest) -> Manifest:
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"{kind}-{name}",
        "generation": 1,
        "creationTimestamp": "2030-01-01T00:00:00Z",
    }
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": metadata, "spec": spec}


def _contract(name: str, shape: PoolSize) -> Manifest:
    """The shipped contract, with its slices cut or repeated to the required number."""
    spec = object_of(load_as(KernelContract, resolve_uri(SERVING_POOL, "")))["spec"]
    given = sorted(spec["slices"], key=lambda one: not one.get("default"))
    slices = given[: shape.slices]
    for n in range(len(slices), shape.slices):
        slices.append({**given[1], "name": f"slice-{n}", "default": False})
    known = {one["name"] for one in slices}
    clauses = [one for one in spec["clauses"] if not one.get("slices") or set(one["slices"]) <= known]
    return _object("KernelContract", name, {**spec, "slices": slices, "clauses": clauses})


def _pool(name: str, shape: PoolSize) -> Manifest:
    kernels = [
        {
            "name": f"k{k}",
            "profile": _PROFILE,
            "replicas": shape.replicas,
            "role": "known_good" if k == 0 else "serving",
            "capacity_rps": 50.0,
            "backend": {"name": f"{name}-k{k}", "port": 8000},
        }
        for k in range(shape.kernels)
    ]
    slices = [one["name"] for one in _contract(name, shape)["spec"]["slices"]]
    home = [{"slice": one, "kernel": f"k{s % shape.kernels}"} for s, one in enumerate(slices)]
    return _object("KernelPool", name, {"kernels": kernels, "home": home})


def _policy(name: str) -> Manifest:
    spec = {
        "description": "A benchmark.",
        "policy": "hysteresis",
        "mode": "enforce",
        "tick_s": 1.0,
        "pool": name,
        "contract": name,
        "meta_contract": SHIPPED_META,
        "route": {"name": name, "slice_header": "x-selvage-slice"},
    }
    return _object("RoutePolicy", name, spec)
