"""What an experiment changes in a namespace, with the rights of the caller: RoutePolicy and FaultDrills."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus

from kubernetes import client

from k8s.api.cluster import ApiCluster
from k8s.api.connection import answers
from k8s.operator.objects import Manifest
from k8s.resources.kinds import GROUP, VERSION, resource_named

_POLICIES, _DRILLS = resource_named("RoutePolicy").plural, resource_named("FaultDrill").plural


class ApiExperiment(ApiCluster):
    """One namespace, as an experiment uses it. Every call has the timeout ``timeout_s``."""

    def __init__(self, api: client.ApiClient, namespace: str, timeout_s: float = 5.0) -> None:
        super().__init__(api, namespace, timeout_s)
        self._leases = client.CoordinationV1Api(api)

    def policy(self, name: str) -> Manifest | None:
        """A RoutePolicy, None where there is none."""
        return self._ours(_POLICIES, f"RoutePolicy {name}", name)

    def put_policy(self, found: Manifest) -> Manifest | None:
        """Replace the RoutePolicy that was read; returns the new version, None if it changed meanwhile."""
        name = found["metadata"]["name"]
        with answers(f"RoutePolicy {name}"):
            try:
                made: Manifest = self._custom.replace_namespaced_custom_object(
                    GROUP,
                    VERSION,
                    self.namespace,
                    _POLICIES,
                    name,
                    found,
                    field_validation="Strict",
                    _request_timeout=self._timeout_s,
                )
            except client.ApiException as error:
                if error.status == HTTPStatus.CONFLICT:
                    return None
                raise
        return made

    def drills(self) -> dict[str, Manifest]:
        """Every FaultDrill by name."""
        return self._all("FaultDrill")

    def drill(self, name: str) -> Manifest | None:
        """A FaultDrill, None where there is none."""
        return self._ours(_DRILLS, f"FaultDrill {name}", name)

    def create_drill(self, drill: Manifest) -> Manifest:
        """Create a FaultDrill and return it as the server stored it."""
        with answers(f"FaultDrill {drill['metadata']['name']}"):
            made: Manifest = self._custom.create_namespaced_custom_object(
                GROUP,
                VERSION,
                self.namespace,
                _DRILLS,
                drill,
                field_validation="Strict",
                _request_timeout=self._timeout_s,
            )
        return made

    def delete_drill(self, name: str) -> None:
        """Delete a FaultDrill, which disappears once it is undone; no error if it is gone."""
        with answers(f"FaultDrill {name}"):
            try:
                self._custom.delete_namespaced_custom_object(
                    GROUP, VERSION, self.namespace, _DRILLS, name, _request_timeout=self._timeout_s
                )
            except client.ApiException as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise

    def lease_age_s(self, name: str) -> float | None:
        """Seconds since a Lease was renewed; None if there is none, or if it has no holder."""
        found = self._one(f"Lease {name}", self._leases.read_namespaced_lease, name)
        spec = (found or {}).get("spec") or {}
        if not spec.get("holderIdentity") or not spec.get("renewTime"):
            return None
        renewed = datetime.fromisoformat(str(spec["renewTime"]).replace("Z", "+00:00"))
        return (datetime.now(UTC) - renewed).total_seconds()

    def _ours(self, plural: str, told: str, name: str) -> Manifest | None:
        what = {"group": GROUP, "version": VERSION, "plural": plural, "name": name}
        return self._custom_object(told, what)
