"""What the operator sees of one namespace, as the API server returns it, and the port to that server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from contracts.errors import SelvageError
from k8s.routes.writer import Routes

Manifest = dict[str, Any]


class ClusterError(SelvageError):
    """The API server refused or did not answer; what is in force stays in force.

    refused: it understood and will not do it, so that asking again changes nothing by itself.
    """

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Our resources of one namespace, by kind and name."""

    contracts: Mapping[str, Manifest]
    pools: Mapping[str, Manifest]
    policies: Mapping[str, Manifest]
    promotions: Mapping[str, Manifest] = field(default_factory=dict)

    @property
    def uids(self) -> list[str]:
        """Of all of them."""
        kinds = (self.policies, self.pools, self.contracts, self.promotions)
        return [str(one["metadata"].get("uid", "")) for kind in kinds for one in kind.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventNote:
    """One event about one resource."""

    about: Manifest
    reason: str
    message: str
    warning: bool


class Cluster(Protocol):
    """One namespace of a cluster. Every method raises ``ClusterError`` where the server does not do it."""

    @property
    def namespace(self) -> str:
        """Its name."""

    @property
    def routes(self) -> Routes:
        """Its HTTPRoutes."""

    @property
    def places_version(self) -> int | None:
        """Rises where ``service``, ``inference_pool``, ``endpoint_slices`` or ``pods`` would answer otherwise
        than before; None: nobody knows, ask.
        """

    def resources(self) -> Resources:
        """Every contract, pool, policy and promotion."""

    def service(self, name: str) -> Manifest | None:
        """A Service, None where there is none."""

    def inference_pool(self, name: str) -> Manifest | None:
        """An InferencePool, None where there is none or nobody knows that kind."""

    def endpoint_slices(self, service: str) -> list[Manifest]:
        """EndpointSlices of a Service."""

    def pods(self, selector: Mapping[str, str]) -> list[Manifest]:
        """Pods with these labels."""

    def label_pod(self, name: str, key: str, value: str) -> None:
        """Set one label of a pod."""

    def write_status(self, found: Manifest, status: Manifest) -> None:
        """Replace the status of one of our resources."""

    def note(self, event: EventNote) -> None:
        """Write an Event."""

    def read_config(self, name: str) -> Manifest | None:
        """A ConfigMap, None where there is none."""

    def write_config(self, config: Manifest) -> None:
        """Create or replace a ConfigMap."""
