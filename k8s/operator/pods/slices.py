"""Servers that EndpointSlices of one Service list. Pure.

A slice has addresses of one family, and a Service of both families has the same servers in slices of each:
the family that the Service names first counts, as at its first cluster address.
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
    """Pod, or address and port."""
    pod: str
    address: str
    port: int
    state: ReplicaState
    in_rotation: bool
    fingerprint: str = ""
    movable: bool = True
    """Whether the label takes it out of what the gateway selects."""
    label: str = ""
    """Value of the label now, "" where it is not known."""
    label_in: str = IN
    """Value that brings it into rotation."""
    uid: str = ""
    """Of its pod, "" where it is not stated: a pod of a StatefulSet comes again under its name."""
    leaves: str = ""
    """Kernel in whose rotation it stands though it is none of its servers."""

    @property
    def url(self) -> str:
        """Of its server."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """An entry of a slice. hostname, node: as it states them, "" where it does not."""

    server: BackendEndpoint
    hostname: str
    node: str

    def may_be(self, other: _Listed) -> bool:
        """Whether ``other``, of another family and no pod either, may be the same server: nothing that both
        state tells them apart.
        """
        told = ((self.hostname, other.hostname), (self.node, other.node))
        return all(one == another or not one or not another for one, another in told)


def listed_servers(
    slices: Sequence[Manifest], named: str | None, families: Sequence[str]
) -> list[BackendEndpoint]:
    """Servers at the port that the slices list under the Service's name for it (``named``): of a Service
    with several ports any may come first. named None: nobody knows the name, and the first one is taken.

    A server that stands in several slices is one. Of those for each family of addresses the first of
    ``families`` where it stands counts; of one family, as while it moves from slice to slice, the one where
    it is ready.
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
    """Key -> what slices of one family list of it."""
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
    """A Service may publish pods that are not ready (``publishNotReadyAddresses``), see ``serving``."""
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
