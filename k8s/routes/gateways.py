"""Conditions that gateways report on a route: refused as it is now, or not observed yet. Pure.

A condition counts for the generation that it observed. A gateway that observed an earlier one is behind: the
weights are in the route, but it is not known whether they are in force.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

#: Conditions of a route's parents, and the status that means that traffic does not go as it is written.
_REFUSES = {"Accepted": "False", "ResolvedRefs": "False", "PartiallyInvalid": "True"}
#: Characters of what a gateway says that are told on.
_MOST_TOLD = 400
#: What a parentRef leaves out.
_DEFAULTS = {"group": "gateway.networking.k8s.io", "kind": "Gateway"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayReport:
    """Of one route; gateways by what they are called."""

    verdicts: Mapping[str, str]
    """Of those that looked at it as it is: what they say against it, "" where they accept it."""
    behind: Mapping[str, int]
    """Those that have looked at an earlier generation, and at which."""
    silent: tuple[str, ...]
    """Those that the route names and that never said anything."""


def gateway_reports(route: Mapping[str, Any]) -> GatewayReport:
    """What the parents of ``route`` say in its status."""
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
    """Why the weights of a route may not be in force although it holds them, "" where all of its gateways say
    that they accept it.
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
    """``NAMESPACE/NAME/LISTENER``, without what goes without saying."""
    own = route["metadata"].get("namespace")
    place = ref.get("namespace")
    parts = [place if place != own else None, ref.get("name", "?"), ref.get("sectionName"), ref.get("port")]
    return "/".join(str(one) for one in parts if one is not None)


def _key(ref: Mapping[str, Any], route: Mapping[str, Any]) -> tuple[str, ...]:
    """Equal for references to the same parent."""
    filled = {**_DEFAULTS, "namespace": route["metadata"].get("namespace"), **ref}
    fields = ("group", "kind", "namespace", "name", "sectionName", "port")
    return tuple(str(filled.get(one) or "") for one in fields)
