"""Conditions that gateways report on a route: refused as it is now, or not observed yet. Pure.

A condition counts for the generation that it observed. A gateway that observed an earlier one is behind: the
weights are in the route, but it is not known whether they are in force.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

#: Condition types of a route's parents, with the status that means that the route is not in force as written.
_REFUSES = {"Accepted": "False", "ResolvedRefs": "False", "PartiallyInvalid": "True"}
#: Maximum characters of a gateway's message that are reported.
_MOST_TOLD = 400
#: Default values of a parentRef.
_DEFAULTS = {"group": "gateway.networking.k8s.io", "kind": "Gateway"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayReport:
    """What gateways report on one route. Gateways are named as by ``_called``."""

    verdicts: Mapping[str, str]
    """Gateways that observed the current generation -> why they refuse it, "" if they accept it."""
    behind: Mapping[str, int]
    """Gateways that did not judge the current generation -> the generation that they observed last."""
    silent: tuple[str, ...]
    """Gateways in ``parentRefs`` without any entry in the route's status."""


def gateway_reports(route: Mapping[str, Any]) -> GatewayReport:
    """The reports of the parents of ``route`` in its status."""
    generation = int(route["metadata"].get("generation") or 0)
    refs = (route.get("spec") or {}).get("parentRefs") or []
    named = {_called(one, route): _key(one, route) for one in refs}
    verdicts: dict[str, list[str]] = {}
    behind: dict[str, int] = {}
    spoken = set()
    for parent in (route.get("status") or {}).get("parents") or []:
        ref = parent.get("parentRef") or {}
        name, conditions = _called(ref, route), list(parent.get("conditions") or [])
        spoken.add(_key(ref, route))
        looked = [one for one in conditions if int(one.get("observedGeneration") or generation) >= generation]
        against = list(_against(name, looked))
        if against or any((one.get("type"), one.get("status")) == ("Accepted", "True") for one in looked):
            verdicts.setdefault(name, []).extend(against)
        elif conditions and _key(ref, route) in named.values():
            behind[name] = min(int(one.get("observedGeneration") or 0) for one in conditions)
    silent = tuple(name for name, key in named.items() if key not in spoken)
    return GatewayReport(
        verdicts={name: "; ".join(told) for name, told in verdicts.items()}, behind=behind, silent=silent
    )


def unconfirmed_reason(said: GatewayReport) -> str:
    """Why the weights in a route may not be in force: gateways that are behind or silent, or no gateway at
    all. "" if every gateway has accepted or refused the route.
    """
    told = [f"gateway {name} has not accepted it as it is yet" for name in said.behind]
    told += [f"gateway {name} has said nothing of it" for name in said.silent]
    if not (told or said.verdicts):
        told = ["it names no gateway and none has said anything of it"]
    return "; ".join(told)


def _against(name: str, conditions: list[Mapping[str, Any]]) -> Iterator[str]:
    for one in conditions:
        if _REFUSES.get(str(one.get("type"))) == one.get("status"):
            said = " ".join(str(one.get("message", "")).split())[:_MOST_TOLD]
            yield f"gateway {name}: {one['type']} is {one['status']} ({one.get('reason')}): {said}"


def _called(ref: Mapping[str, Any], route: Mapping[str, Any]) -> str:
    """``NAMESPACE/NAME/LISTENER/PORT`` of a parentRef, without the route's own namespace and unset parts."""
    own = route["metadata"].get("namespace")
    place = ref.get("namespace")
    parts = [place if place != own else None, ref.get("name", "?"), ref.get("sectionName"), ref.get("port")]
    return "/".join(str(one) for one in parts if one is not None)


def _key(ref: Mapping[str, Any], route: Mapping[str, Any]) -> tuple[str, ...]:
    """A key that is equal for references to the same parent."""
    filled = {**_DEFAULTS, "namespace": route["metadata"].get("namespace"), **ref}
    fields = ("group", "kind", "namespace", "name", "sectionName", "port")
    return tuple(str(filled.get(one) or "") for one in fields)
