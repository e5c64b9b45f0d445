"""Writer of the rules of an owned HTTPRoute; it never overwrites rules of another writer.

``spec.rules`` is an atomic list: a single weight of it cannot be owned, so the operator owns all of it or
none. An annotation names the RoutePolicy that owns the route, another the hash of the rules that it wrote
last, as the server stored them. A route of another owner, or one whose rules are not what was written last,
is reported and left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from contracts.loading.files import canonical_sha256
from k8s.routes.rules import Rule, dropped_fields, plain_rules

OWNER = "selvage.dev/route-policy"
WRITTEN = "selvage.dev/rules-sha256"
#: Annotation with the hash of the requested rules, if the server stored them in another form.
ASKED = "selvage.dev/asked-sha256"
#: Maximum number of attempts in one call.
ATTEMPTS = 5
Manifest = dict[str, Any]


class RouteError(Exception):
    """A route that was not written; ``reason`` is one word for conditions, the text says what to do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Conflict(Exception):
    """The object changed since it was read (HTTP 409)."""


class Routes(Protocol):
    """HTTPRoutes of one namespace, as the writer needs them."""

    def read(self, name: str) -> Manifest | None:
        """The route, None if there is none."""

    def create(self, route: Manifest) -> Manifest:
        """Create the route; raises ``Conflict`` if it exists by now."""

    def replace(self, route: Manifest, *, trial: bool = False) -> Manifest:
        """Replace by resourceVersion; what is stored now. ``Conflict`` where it is not the newest.

        trial: nothing is stored, and what would be is returned.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRoute:
    """The route of one RoutePolicy."""

    name: str
    owner: str
    """``namespace/name`` of the policy."""
    gateway: str | None = None
    """Gateway of a route that does not exist yet; without it one must exist."""
    hostnames: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteWrite:
    """A route that has the rules that were asked for. written: they were not there before."""

    written: bool
    stored: Manifest


def put_rules(routes: Routes, route: WrittenRoute, rules: list[Rule]) -> RouteWrite:
    """Put ``rules`` in force.

    RouteError (reason ``RouteMissing``, ``RouteOwnedByOther``, ``ForeignEdit``, ``FieldsDropped``,
    ``WriteConflict``) where not: the rules that stand stay in force.
    """
    for _ in range(ATTEMPTS):
        found = routes.read(route.name)
        try:
            if found is None:
                stored = routes.create(_fresh(route, rules))
            else:
                check_owned(found, route)
                if _holds(found, rules):
                    return RouteWrite(written=False, stored=found)
                wanted = _with_rules(found, route, rules)
                _check_mirrors(routes, wanted, rules)
                stored = routes.replace(wanted)
        except Conflict:
            continue
        _note_stored(routes, stored, rules)
        return RouteWrite(written=True, stored=stored)
    raise _beaten(route.name)


def _holds(found: Manifest, rules: list[Rule]) -> bool:
    """Whether the owned route ``found`` has ``rules``, or the form in which the server stored them."""
    said, stored = _annotations(found), found["spec"].get("rules", [])
    if said.get(WRITTEN) != _digest(stored):
        return False
    return plain_rules(stored) == plain_rules(rules) or said.get(ASKED) == _digest(rules)


def _check_mirrors(routes: Routes, wanted: Manifest, rules: list[Rule]) -> None:
    """Raise RouteError if the CRD drops the share of a mirror: without it, all requests would be mirrored."""
    if not any(rule.get("filters") for rule in rules):
        return
    stored = routes.replace(wanted, trial=True)["spec"].get("rules", [])
    if paths := dropped_fields(plain_rules(rules), plain_rules(stored)):
        message = (
            f"the definition of HTTPRoute in this cluster drops {', '.join(paths)}, so nothing is written; "
            "install Gateway API 1.3 or newer, or take the promotion back"
        )
        raise RouteError("FieldsDropped", message)


def _note_stored(routes: Routes, stored: Manifest, rules: list[Rule]) -> None:
    """Record the stored form of ``rules`` if it differs, so that it is not taken for an edit by others."""
    kept, name = stored["spec"].get("rules", []), stored["metadata"]["name"]
    for _ in range(ATTEMPTS):
        if _annotations(stored).get(WRITTEN) == _digest(kept):
            return
        annotations = {**_annotations(stored), WRITTEN: _digest(kept), ASKED: _digest(rules)}
        try:
            routes.replace({**stored, "metadata": {**stored["metadata"], "annotations": annotations}})
            return
        except Conflict:  # as a gateway's status is: what was stored is read again
            found = routes.read(name)
            if found is None or found["spec"].get("rules", []) != kept:
                return
            stored = found
    raise _beaten(name)


def _beaten(name: str) -> RouteError:
    return RouteError("WriteConflict", f"HTTPRoute {name} changed {ATTEMPTS} times while it was written")


def check_owned(found: Manifest, route: WrittenRoute) -> None:
    """RouteError unless ``found`` belongs to ``route``'s policy and its rules are what was written last."""
    owner, written = _annotations(found).get(OWNER), _annotations(found).get(WRITTEN)
    if owner != route.owner:
        message = (
            f"HTTPRoute {route.name} belongs to {owner or 'an owner without a name'}, not to {route.owner}; "
            f"annotate it with {OWNER}={route.owner} to hand it over, or name another route"
        )
        raise RouteError("RouteOwnedByOther", message)
    rules = found["spec"].get("rules", [])
    if written not in (
        None,
        _digest(rules),
        canonical_sha256(rules),
    ):  # the last: of older versions
        message = (
            f"the rules of HTTPRoute {route.name} were edited by another client and are left as they are; "
            f"remove its annotation {WRITTEN} to let {route.owner} write them again"
        )
        raise RouteError("ForeignEdit", message)


def _fresh(route: WrittenRoute, rules: list[Rule]) -> Manifest:
    if route.gateway is None:
        message = (
            f"there is no HTTPRoute {route.name}; create it with parentRefs and the annotation "
            f"{OWNER}={route.owner}, or name a gateway in the RoutePolicy"
        )
        raise RouteError("RouteMissing", message)
    spec: Manifest = {"parentRefs": [{"name": route.gateway}], "rules": []}
    if route.hostnames:
        spec["hostnames"] = list(route.hostnames)
    bare: Manifest = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": route.name},
        "spec": spec,
    }
    return _with_rules(bare, route, rules)


def _with_rules(found: Manifest, route: WrittenRoute, rules: list[Rule]) -> Manifest:
    kept = {key: one for key, one in _annotations(found).items() if key != ASKED}
    annotations = {**kept, OWNER: route.owner, WRITTEN: _digest(rules)}
    metadata = {**found["metadata"], "annotations": annotations}
    return {**found, "metadata": metadata, "spec": {**found["spec"], "rules": rules}}


def _annotations(found: Manifest) -> dict[str, str]:
    return dict(found["metadata"].get("annotations") or {})


def _digest(rules: list[Rule]) -> str:
    return canonical_sha256(plain_rules(rules))
