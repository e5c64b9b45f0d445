"""Backends of a kernel that no pool may name, and a word of each error."""

from __future__ import annotations

from typing import Any

_GROUP = "inference.networking.k8s.io"
_POOL: dict[str, Any] = {"group": _GROUP, "kind": "InferencePool", "name": "fp8"}

BROKEN_BACKENDS: dict[str, tuple[dict[str, Any], str]] = {
    "a pool without its group": ({"kind": "InferencePool", "name": "fp8"}, f"has group {_GROUP}"),
    "a Service with a group": ({"group": _GROUP, "name": "fp8", "port": 8000}, f"has group {_GROUP}"),
    "a port of a pool": ({**_POOL, "port": 8000}, "names its port"),
    "a Service without a port": ({"name": "fp8"}, "names its port"),
    "another kind of backend": ({"kind": "Deployment", "name": "fp8", "port": 1}, "Unsupported value"),
}
