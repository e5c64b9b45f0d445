"""Servers that EndpointSlices of one Service list. Pure.

An EndpointSlice holds addresses of one IP family. A dual-stack Service lists the same servers in slices of
both families; the address of the family that the Service names first is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contracts.telemetry import ReplicaState
from k8s.operator.objects import Manifest
from k8s.operator.pods.pod_facts import IN


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendEndpoint:
    """One server."""

    key: str
    """Identifies the server: the pod's name, or ``address:port`` for an endpoint without a pod."""
    pod: str
    address: str
    port: int
    state: ReplicaState
    in_rotation: bool
    fingerprint: str = ""
    movable: bool = True
    """Whether changing the in-rotation label removes the server from the backend's selection."""
    label: str = ""
    """Current value of the in-rotation label, "" if unknown."""
    label_in: str = IN
    """Label value that puts the server into rotation."""
    uid: str = ""
    """Uid of its pod, "" if not stated. A StatefulSet recreates a pod under its name with another uid."""
    leaves: str = ""
    """Kernel that still has this server in rotation although the server belongs to another kernel now."""

    @property
    def url(self) -> str:
        """Base URL of the server."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """One endpoint of an EndpointSlice. hostname, node: as the endpoint states them, "" if it does not."""

    server: BackendEndpoint
    hostname: str
    node: str

    def may_be(self, other: _Listed) -> bool:
        """Whether ``other`` may be the same server: no field that both state differs. Used for endpoints of
        different address families that refer to no pod.
        """
        told = ((self.hostname, other.hostname), (self.node, other.node))
        return all(one == another or not one or not another for one, another in told)


def listed_servers(
    slices: Sequence[Manifest], named: str | None, families: Sequence[str]
) -> list[BackendEndpoint]:
    """Servers at the port called ``named`` in the slices; the ports of a Service are in no fixed order.
    named None: the port's name is unknown, and the first port is taken.

    A server that is listed several times is returned once. Between address families, the first one in
    ``families`` that lists it is used. Within one family, for example while an endpoint moves between slices,
    an entry that is ready takes precedence.
    """
    order = dict.fromkeys([*families, *sorted({_family(one) for one in slices})])
    found: dict[str, _Listed] = {}
    for family in order:
        here = _of_family([one for one in slices if _family(one) == family], named)
        before = [one for one in found.values() if not one.server.pod]
        for key, one in here.items():
            if one.server.pod or not any(one.may_be(other) for other in before):
                found.setdefault(key, one)
    return [one.server for one in found.values()]


def _family(one: Manifest) -> str:
    return str(one.get("addressType") or "")


def _of_family(slices: Sequence[Manifest], named: str | None) -> dict[str, _Listed]:
    """Key -> endpoint, from slices of one address family; a ready entry replaces one that is not ready."""
    found: dict[str, _Listed] = {}
    for one in slices:
        ports = [port for port in one.get("ports") or [] if port.get("port")]
        ports = ports if named is None else [port for port in ports if (port.get("name") or "") == named]
        for said in one.get("endpoints") or [] if ports else []:
            if said.get("addresses") and not (said.get("conditions") or {}).get("terminating"):
                listed = _of_slice(said, int(ports[0]["port"]))
                before = found.setdefault(listed.server.key, listed)
                if before.server.state != ReplicaState.READY:
                    found[listed.server.key] = listed
    return found


def _of_slice(endpoint: Mapping[str, Any], port: int) -> _Listed:
    """The entry of one endpoint. With ``publishNotReadyAddresses`` every endpoint has ``ready: true``, so
    ``serving`` is checked too.
    """
    said, target = endpoint.get("conditions") or {}, endpoint.get("targetRef") or {}
    serves = said.get("ready") is not False and said.get("serving") is not False
    pod = str(target.get("name", "")) if target.get("kind", "Pod") == "Pod" else ""
    address = str(endpoint["addresses"][0])
    server = BackendEndpoint(
        key=pod or f"{address}:{port}",
        pod=pod,
        address=address,
        port=port,
        state=ReplicaState.READY if serves else ReplicaState.STARTING,
        in_rotation=True,
        uid=str(target.get("uid") or ""),
    )
    other = str(target.get("name") or "") if target and not pod else ""
    return _Listed(
        server=server,
        hostname=other or str(endpoint.get("hostname") or ""),
        node=str(endpoint.get("nodeName") or ""),
    )
