"""A routing table as rules of an HTTPRoute: one rule per slice, one backend per kernel.

What the API server fills in or leaves out depends on the version of its definition, so rules are compared by
``plain_rules``, and a foreign edit shows. Source: Gateway API v1, HTTPRouteRule and HTTPBackendRef.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Weights of a rule add up to this; the Gateway API allows 1,000,000.
WHOLE = 10_000
#: Backends of one rule, and rules of one route (Gateway API v1).
MOST_BACKENDS, MOST_RULES = 16, 16

Rule = dict[str, Any]
#: Pattern of a rule's name (SectionName).
_SECTION = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

#: Default values of the Gateway API's CRDs, by the field that holds the object or its list.
_FILLED: dict[str, Rule] = {
    "backendRef": {"group": "", "kind": "Service"},
    "backendRefs": {"group": "", "kind": "Service", "weight": 1},
    "fraction": {"denominator": 100},
    "headers": {"type": "Exact"},
    "matches": {"path": {"type": "PathPrefix", "value": "/"}},
    "path": {"type": "PathPrefix", "value": "/"},
}
#: What a rule without matches stands for.
_ALL = [_FILLED["matches"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """What answers: a kernel's Service or InferencePool, or the Service that refuses with 429."""

    name: str
    port: int | None
    """None for an InferencePool, which has a target port of its own."""
    namespace: str | None = None
    group: str = ""
    kind: str = "Service"

    @property
    def key(self) -> tuple[str, str, str]:
        """Group, kind and name: a Service and an InferencePool may share a name."""
        return self.group, self.kind, self.name

    def as_json(self, weight: int) -> dict[str, Any]:
        """As a backendRef of ``weight``."""
        found: dict[str, Any] = {"group": self.group, "kind": self.kind, "name": self.name}
        found |= {} if self.port is None else {"port": self.port}
        found |= {"weight": weight}
        return found if self.namespace is None else {**found, "namespace": self.namespace}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """A share of every slice's requests that is mirrored to a backend; its answers are dropped."""

    backend: Backend
    ratio: float  # 0 to 1

    def as_json(self) -> dict[str, Any]:
        """As a filter of a rule."""
        target = {key: value for key, value in self.backend.as_json(0).items() if key != "weight"}
        fraction = {"numerator": max(1, round(self.ratio * WHOLE)), "denominator": WHOLE}
        return {"type": "RequestMirror", "requestMirror": {"backendRef": target, "fraction": fraction}}


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteShape:
    """The parts of a route that do not change from tick to tick."""

    slices: Sequence[str]  # S, as in the table
    default_slice: str  # takes requests without a known header
    slice_header: str
    kernels: Sequence[Backend]  # K, as in the table
    shed: Backend  # answers 429 with Retry-After
    mirrors: Sequence[Mirror] = ()

    def __post_init__(self) -> None:
        """Refuse what no route can hold, before anything is written."""
        if len(self.kernels) + 1 > MOST_BACKENDS:
            raise ValueError(f"expected at most {MOST_BACKENDS - 1} kernels, got {len(self.kernels)}")
        if len(self.slices) > MOST_RULES:
            raise ValueError(f"expected at most {MOST_RULES} slices, got {len(self.slices)}")
        if self.default_slice not in self.slices:
            raise ValueError(f"expected the default slice among {self.slices}, got {self.default_slice!r}")


def route_rules(table: NDArray[np.float64], shape: RouteShape) -> list[Rule]:
    """Rules for ``table`` [S, K + 1] (the last column is shed), the default slice last.

    ValueError where a row is no distribution: a wrong table is never written.
    """
    expected = (len(shape.slices), len(shape.kernels) + 1)
    if table.shape != expected:
        raise ValueError(f"expected a table of {expected} slices and kernels, got {table.shape}")
    if not bool((np.isfinite(table) & (table >= 0.0)).all()) or np.abs(table.sum(axis=1) - 1.0).max() > 1e-6:
        raise ValueError(f"expected rows of shares that add up to 1, got {table.tolist()}")
    names = _rule_names(shape)
    return [_rule(at, names[at], integer_weights(table[at]), shape) for at in _order(shape)]


def rule_slices(shape: RouteShape) -> dict[str, str]:
    """Number, name and slice of each rule -> its slice: what gateways call rules by."""
    names, called = [shape.slices[at] for at in _order(shape)], _rule_names(shape)
    numbered = {str(number): name for number, name in enumerate(names)}
    return numbered | dict(zip(called, shape.slices, strict=True)) | {name: name for name in names}


def backend_places(shape: RouteShape) -> dict[str, int]:
    """Number and name of each backend of a rule -> its place; the one that refuses is last."""
    names = [one.name for one in (*shape.kernels, shape.shed)]
    return {str(at): at for at in range(len(names))} | {name: at for at, name in enumerate(names)}


def table_of(rules: Sequence[Rule], shape: RouteShape) -> NDArray[np.float64] | None:
    """The table [S, K + 1] that ``rules`` express; None if they are not rules of ``shape``."""
    found = np.zeros((len(shape.slices), len(shape.kernels) + 1))
    by_slice = {_slice_of(rule, shape): rule for rule in rules}
    for at, name in enumerate(shape.slices):
        rule = by_slice.get(name)
        written = (rule or {}).get("backendRefs") or []
        weights = [one.get("weight", 1) for one in written]
        expected = [one.key for one in (*shape.kernels, shape.shed)]
        if [_key_of(one) for one in written] != expected or not sum(weights) > 0:
            return None
        found[at] = np.array(weights) / sum(weights)
    return found if len(rules) == len(shape.slices) else None


def table_begun(
    rules: Sequence[Rule], shape: RouteShape, otherwise: NDArray[np.float64]
) -> NDArray[np.float64]:
    """A table [S, K + 1] to begin with where ``rules`` may be of an earlier ``shape``: of each slice what its
    rule gives to backends of today; the row of ``otherwise`` where it has no rule or gives them nothing.
    """
    keys = [one.key for one in (*shape.kernels, shape.shed)]
    found, by_slice = otherwise.copy(), {_slice_of(rule, shape): rule for rule in rules}
    for at, name in enumerate(shape.slices):
        row = np.zeros(len(keys))
        for one in by_slice.get(name, {}).get("backendRefs") or []:
            if (key := _key_of(one)) in keys:
                row[keys.index(key)] += one.get("weight", 1)
        if row.sum() > 0:
            found[at] = row / row.sum()
    return found


def plain_rules(rules: Sequence[Rule]) -> list[Rule]:
    """``rules`` in a normal form that does not depend on the version of the Gateway API, for comparisons.

    Names of rules are left out, because the standard definitions before Gateway API 1.4 drop them. Defaults
    are filled in, and empty lists are left out; all other fields stay.
    """
    bare = [{key: value for key, value in rule.items() if key != "name"} for rule in rules]
    return [{"matches": _ALL, **_filled(rule, "rules")} for rule in bare]


def dropped_fields(sent: Any, stored: Any, where: str = "") -> list[str]:
    """Paths of what is in ``sent`` and not in ``stored``."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        inner = [dropped_fields(one, stored.get(key), f"{where}.{key}") for key, one in sent.items()]
    elif isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        inner = [dropped_fields(one, kept, where) for one, kept in zip(sent, stored, strict=True)]
    else:
        return [] if sent == stored else [where.lstrip(".")]
    return sorted({path for paths in inner for path in paths})


def _filled(found: Any, where: str) -> Any:
    """``found``, which stands in field ``where``, with what definitions fill in and without empty lists."""
    if isinstance(found, list):
        return [_filled(one, where) for one in found]
    if not isinstance(found, dict):
        return found
    inner = {key: _filled(one, key) for key, one in found.items() if one not in ([], None)}
    return {**_FILLED.get(where, {}), **inner}


def _key_of(written: Rule) -> tuple[str, str, str]:
    """``Backend.key`` of a backendRef."""
    return written.get("group", ""), written.get("kind", "Service"), written.get("name", "")


def _slice_of(rule: Rule, shape: RouteShape) -> str:
    """Slice of ``rule`` by the header that it matches, "" where it matches by anything else."""
    matches = rule.get("matches") or [{}]
    headers = [one for match in matches for one in match.get("headers") or []]
    if not headers:
        return shape.default_slice
    named = len(headers) == 1 and str(headers[0].get("name", "")).lower() == shape.slice_header.lower()
    return str(headers[0].get("value", "")) if named else ""


def integer_weights(row: NDArray[np.float64]) -> NDArray[np.int64]:
    """Weights that add up to ``WHOLE`` and stand within one of ``row`` times it (largest remainders)."""
    exact = row / row.sum() * WHOLE
    weights = np.floor(exact).astype(np.int64)
    missing = int(WHOLE - weights.sum())
    weights[np.argsort(weights - exact, kind="stable")[:missing]] += 1
    return np.asarray(weights)


def _rule(at: int, name: str, weights: NDArray[np.int64], shape: RouteShape) -> Rule:
    slice_name = shape.slices[at]
    match: dict[str, Any] = {"path": {"type": "PathPrefix", "value": "/"}}
    if slice_name != shape.default_slice:
        match["headers"] = [{"type": "Exact", "name": shape.slice_header, "value": slice_name}]
    backends = [*shape.kernels, shape.shed]
    filters = {"filters": [one.as_json() for one in shape.mirrors]} if shape.mirrors else {}
    return {
        "name": name,
        "matches": [match],
        **filters,
        "backendRefs": [one.as_json(int(weight)) for one, weight in zip(backends, weights, strict=True)],
    }


def _order(shape: RouteShape) -> list[int]:
    """Slices in the order of their rules: the default slice last."""
    return sorted(range(len(shape.slices)), key=lambda at: shape.slices[at] == shape.default_slice)


def _rule_names(shape: RouteShape) -> list[str]:
    """Name of each slice's rule: the slice as a rule may be called, or its number where that is no name
    (``a_.b``) or another slice's too (``code`` and ``Code``): a server refuses a route for one of these.
    """
    plain = [name.lower().replace("_", "-") for name in shape.slices]
    alone = [plain.count(name) == 1 and _SECTION.fullmatch(name) is not None for name in plain]
    taken = [name for name, own in zip(plain, alone, strict=True) if own]
    prefix = "slice"
    while any(name.startswith(prefix) for name in taken):
        prefix += "-x"
    return [
        name if own else f"{prefix}-{at}" for at, (name, own) in enumerate(zip(plain, alone, strict=True))
    ]
