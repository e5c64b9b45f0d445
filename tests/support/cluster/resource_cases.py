"""Resources of each kind that are valid, changes that break them, and the words that refuse each."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from contracts.documents import KernelContract, KernelPool, RoutePolicy
from contracts.loading.loader import load_as, load_text
from contracts.loading.uris import resolve_uri
from k8s.resources.kinds import object_of
from tests.support.cluster.backend_cases import BROKEN_BACKENDS
from tests.support.documents.documents_written import envelope
from tests.support.documents.drill_cases import BROKEN_DRILLS, grows
from tests.support.documents.drills import DRILL

Object = dict[str, Any]
Change = Callable[[Object], object]


def shipped(kind: type[Any], name: str) -> Object:
    """A shipped document as an object."""
    return object_of(load_as(kind, resolve_uri(f"package:contracts/library/{name}", "")))


def contract() -> Object:
    """The shipped contract."""
    return shipped(KernelContract, "serving-pool.yaml")


def pool() -> Object:
    """The shipped pool, its kernels behind Services."""
    found = shipped(KernelPool, "suites/e5-pool.yaml")
    for kernel in found["spec"]["kernels"]:
        kernel["backend"] = {"name": kernel["name"], "port": 8000}
    return found


def policy() -> Object:
    """The shipped policy."""
    return shipped(RoutePolicy, "route-policy.yaml")


def drill() -> Object:
    """A copy of the sample drill."""
    return copy.deepcopy(DRILL)


def promotion() -> Object:
    """A minimal promotion."""
    evidence = {"uri": "configmap:evidence/evaluation.json", "sha256": "0" * 64}
    spec: Object = {
        "description": "a test",
        "policy": "chat",
        "candidate": "fp8",
        "offline": {"evaluation": evidence},
    }
    return object_of(load_text(json.dumps(envelope("KernelPromotion", "fp8", spec)), "promotion"))


VALID = {
    "KernelContract": contract,
    "KernelPool": pool,
    "RoutePolicy": policy,
    "FaultDrill": drill,
    "KernelPromotion": promotion,
}


def _set(*path: str | int, to: object) -> Change:
    """A change that sets the value at ``path``."""

    def change(spec: Object) -> None:
        place: Any = spec
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return change


def _twice(key: str) -> Change:
    """A change that repeats the first item of the list ``key``."""
    return lambda spec: spec[key].append(copy.deepcopy(spec[key][0]))


def hook(**changes: object) -> Object:
    """A webhook of a promotion."""
    return {"name": "tests", "kind": "veto", "url": "https://hooks.example/veto", **changes}


def frozen(until: str, weight: float = 1.0) -> Object:
    """Break-glass with one pinned row."""
    row = {"slice": "prose", "weights": [{"kernel": "bf16", "weight": weight}]}
    return {"until": until, "reason": "a test holds it", "table": [row]}


BROKEN: dict[str, tuple[str, Change, str]] = {
    "slice twice": ("KernelContract", _twice("slices"), "each name once"),
    "no default slice": (
        "KernelContract",
        _set("slices", 1, "default", to=False),
        "exactly one with default",
    ),
    "clause twice": ("KernelContract", _twice("clauses"), "each id once"),
    "unknown slice": (
        "KernelContract",
        _set("clauses", 0, "slices", to=["poems"]),
        "slices of this contract",
    ),
    "guard above fallback": (
        "KernelContract",
        _set("escalation", "guard_threshold", to=3.0),
        "guard comes before fallback",
    ),
    "kernel twice": ("KernelPool", _twice("kernels"), "each name once"),
    "no known good": ("KernelPool", lambda spec: _no_known_good(spec), "exactly one with role: known_good"),
    "home elsewhere": (
        "KernelPool",
        _set("home", 0, "kernel", to="nowhere"),
        "a serving kernel of this pool",
    ),
    "slice at home twice": ("KernelPool", _twice("home"), "each slice once"),
    "zones unlike replicas": (
        "KernelPool",
        lambda spec: spec["kernels"][0].pop("zone", None) or spec["kernels"][0].update(zones=["a"]),
        "one zone per replica",
    ),
    "fault twice": ("FaultDrill", _twice("faults"), "each name once"),
    "no evidence": ("KernelPromotion", _set("offline", to={}), "either evaluation or register"),
    "replaces itself": ("KernelPromotion", _set("replaces", to="fp8"), "another kernel"),
    "an upgrade of nobody": ("KernelPromotion", _set("announced_fingerprint", to="b"), "upgraded"),
    "no time for its window": (
        "KernelPromotion",
        _set("shadow", "deadline_s", to=1.0),
        "at least stability_s",
    ),
    "no time for the canary": (
        "KernelPromotion",
        _set("canary", "deadline_s", to=1.0),
        "canary: deadline_s is at least",
    ),
    "a guard above the canary": (
        "KernelPromotion",
        _set("canary", "guard_ratio", to=0.4),
        "at most weight_ratio",
    ),
    "a gate twice": (
        "KernelPromotion",
        _set("manual_gates", to=["full", "full"]),
        "each stage once",
    ),
    "a webhook twice": (
        "KernelPromotion",
        _set("webhooks", to=[hook(), hook()]),
        "each name once",
    ),
    "stages of an event": (
        "KernelPromotion",
        _set("webhooks", to=[hook(kind="event", stages=["full"])]),
        "stages go with confirm and veto",
    ),
    "a stage of a webhook twice": (
        "KernelPromotion",
        _set("webhooks", to=[hook(stages=["full", "full"])]),
        "each stage once",
    ),
    "a password in a URL": (
        "KernelPromotion",
        _set("webhooks", to=[hook(url="https://me:secret@hooks.example/veto")]),
        "should match",
    ),
    "no http": ("KernelPromotion", _set("webhooks", to=[hook(url="file:///etc/passwd")]), "should match"),
    "a line break in a URL": (
        "KernelPromotion",
        _set("webhooks", to=[hook(url="https://hooks.example/a\nb")]),
        "should match",
    ),
    "rewards the wrong way round": (
        "KernelContract",
        _set(
            "assumptions",
            to={"reward_min": 1.0, "reward_max": 0.5, "advantage_max": 1.0, "score_norm_max": 1.0},
        ),
        "reward_max lies above",
    ),
    "more slices than a route has rules": (
        "KernelContract",
        lambda spec: spec["slices"].extend({"name": f"more-{n}"} for n in range(17 - len(spec["slices"]))),
        "at most 16 items",
    ),
    "zone and zones": (
        "KernelPool",
        lambda spec: spec["kernels"][0].update(zone="a", zones=["a"] * spec["kernels"][0]["replicas"]),
        "zone or zones, not both",
    ),
    "a pinned row without its whole": (
        "RoutePolicy",
        _set("freeze", to=frozen("2030-01-31T18:00:00Z", weight=0.7)),
        "weights that add up to 1",
    ),
    "a replica of no kernel": (
        "FaultDrill",
        _set("faults", 0, "target", to={"replica": 0}),
        "within a kernel",
    ),
    "fault after the drill": ("FaultDrill", _set("faults", 0, "onset_s", to=1e6), "before time_to_live_s"),
}

BROKEN |= {
    name: ("KernelPool", _set("kernels", 0, "backend", to=backend), said)
    for name, (backend, said) in BROKEN_BACKENDS.items()
}

BROKEN |= {name: ("FaultDrill", change, said) for name, (change, said) in BROKEN_DRILLS.items()}

#: Rules that apply only in a cluster.
CLUSTER_ONLY: dict[str, tuple[str, Change, str]] = {
    "no backend": ("KernelPool", lambda spec: spec["kernels"][0].pop("backend"), "names its backend"),
    "learned without artefact": ("RoutePolicy", lambda spec: spec.pop("artifact"), "pinned PolicyArtifact"),
    "no guard": ("FaultDrill", _set("abort_when", to=[]), "at least one guard"),
    "a dose that grows": ("FaultDrill", grows, "on or off"),
    "frozen for good": (
        "RoutePolicy",
        _set("freeze", to=frozen("9999-12-31T00:00:00Z")),
        "an instant in UTC",
    ),
    "more kernels than a rule has backends": (
        "KernelPool",
        lambda spec: spec["kernels"].extend(
            {**copy.deepcopy(spec["kernels"][0]), "name": f"more-{n}"} for n in range(16)
        ),
        "an HTTPRoute rule holds 16 backends",
    ),
}


def _no_known_good(spec: Object) -> None:
    """Make every kernel a serving one."""
    for kernel in spec["kernels"]:
        kernel["role"] = "serving"
