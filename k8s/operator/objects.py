"""The objects of one namespace that the operator reads, and its port to the API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from contracts.errors import SelvageError
from k8s.routes.writer import Routes

Manifest = dict[str, Any]


class ClusterError(SelvageError):
    """The API server refused a request or did not answer. What is in force stays in force.

    refused: the server answered and rejected the request, so repeating it does not help.
    """

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Selvage's resources of one namespace, by kind and name."""

    contracts: Mapping[str, Manifest]
    pools: Mapping[str, Manifest]
    policies: Mapping[str, Manifest]
    promotions: Mapping[str, Manifest] = field(default_factory=dict)

    @property
    def uids(self) -> list[str]:
        """Uids of all of them."""
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
    """One namespace of a cluster. Every method raises ``ClusterError`` if the server does not comply."""

    @property
    def namespace(self) -> str:
        """Its name."""

    @property
    def routes(self) -> Routes:
        """Its HTTPRoutes."""

    @property
    def places_version(self) -> int | None:
        """Rises when results of ``service``, ``inference_pool``, ``endpoint_slices`` or ``pods`` change.
        None: changes are not tracked, so read the objects.
        """

    def resources(self) -> Resources:
        """Every contract, pool, policy and promotion."""

    def service(self, name: str) -> Manifest | None:
        """A Service, None if there is none."""

    def inference_pool(self, name: str) -> Manifest | None:
        """An InferencePool, None if there is none or the cluster does not have that kind."""

    def endpoint_slices(self, service: str) -> list[Manifest]:
        """EndpointSlices of a Service."""

    def pods(self, selector: Mapping[str, str]) -> list[Manifest]:
        """Pods with these labels."""

    def label_pod(self, name: str, key: str, value: str) -> None:
        """Set one label of a pod."""

    def write_status(self, found: Manifest, status: Manifest) -> None:
        """Replace the status of one of Selvage's resources."""

    def note(self, event: EventNote) -> None:
        """Write an Event."""

    def read_config(self, name: str) -> Manifest | None:
        """A ConfigMap, None if there is none."""

    def write_config(self, config: Manifest) -> None:
        """Create or replace a ConfigMap."""
