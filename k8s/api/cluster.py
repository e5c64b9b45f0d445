"""``k8s.operator.objects.Cluster`` of one namespace, by the official client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar
from uuid import uuid4

from kubernetes import client

from contracts.documents.pool import POOL_GROUP
from k8s.api.connection import answers
from k8s.api.pages import listed
from k8s.api.routes import FIELD_MANAGER, ApiRoutes
from k8s.api.watched import NamespaceWatch
from k8s.operator.objects import EventNote, Manifest, Resources
from k8s.operator.pods.slots import OF_SERVICE, POOL_VERSION, POOLS, Places
from k8s.resources.kinds import GROUP, VERSION, resource_named
from k8s.routes.writer import Routes

#: Most Events returned for one resource.
_MOST_EVENTS = 20

_Kept = TypeVar("_Kept")


class _GuardedRoutes:
    """Routes that raise ``ClusterError`` if the server cannot be reached; ``Conflict`` passes through."""

    def __init__(self, inner: ApiRoutes) -> None:
        self._inner = inner

    def read(self, name: str) -> Manifest | None:
        with answers(f"HTTPRoute {name}"):
            return self._inner.read(name)

    def create(self, route: Manifest) -> Manifest:
        with answers("HTTPRoute"):
            return self._inner.create(route)

    def replace(self, route: Manifest, *, trial: bool = False) -> Manifest:
        with answers("HTTPRoute"):
            return self._inner.replace(route, trial=trial)


class ApiCluster:
    """One namespace. Every call has the timeout ``timeout_s``."""

    def __init__(
        self,
        api: client.ApiClient,
        namespace: str,
        timeout_s: float = 5.0,
        watched: NamespaceWatch | None = None,
    ) -> None:
        """watched: cache of Services, EndpointSlices, pods and pools, used while current; None: no cache."""
        self._namespace, self._timeout_s, self._watched = namespace, timeout_s, watched
        self._core, self._custom = client.CoreV1Api(api), client.CustomObjectsApi(api)
        self._discovery, self._api = client.DiscoveryV1Api(api), api
        self._routes = _GuardedRoutes(ApiRoutes(api, namespace, timeout_s))

    @property
    def namespace(self) -> str:
        """Its name."""
        return self._namespace

    @property
    def routes(self) -> Routes:
        """Its HTTPRoutes."""
        return self._routes

    @property
    def places_version(self) -> int | None:
        """See ``k8s.operator.objects.Cluster``."""
        places = self._places
        return None if places is None else places.version

    @property
    def _places(self) -> Places | None:
        return None if self._watched is None else self._watched.places

    def resources(self) -> Resources:
        """Every contract, pool, policy and promotion."""
        return Resources(
            contracts=self._all("KernelContract"),
            pools=self._all("KernelPool"),
            policies=self._all("RoutePolicy"),
            promotions=self._all("KernelPromotion"),
        )

    def service(self, name: str) -> Manifest | None:
        """A Service, None where there is none."""
        if (places := self._places) is not None:
            return places.service(name)
        return self._one(f"Service {name}", self._core.read_namespaced_service, name)

    def inference_pool(self, name: str) -> Manifest | None:
        """The InferencePool ``name``; None if there is none, or if the cluster does not know the kind."""
        if self._watched is not None:
            self._watched.want_pools()
        if (places := self._places) is not None and places.lists(POOLS):
            return places.inference_pool(name)
        what = {"group": POOL_GROUP, "version": POOL_VERSION, "plural": POOLS, "name": name}
        return self._custom_object(f"InferencePool {name}", what)

    def endpoint_slices(self, service: str) -> list[Manifest]:
        """EndpointSlices of a Service."""
        if (places := self._places) is not None:
            return places.endpoint_slices(service)
        selector = f"{OF_SERVICE}={service}"
        return self._many("EndpointSlices", self._discovery.list_namespaced_endpoint_slice, selector)

    def pods(self, selector: Mapping[str, str]) -> list[Manifest]:
        """Pods with these labels."""
        if (places := self._places) is not None:
            return places.pods(selector)
        chosen = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
        return self._many("Pods", self._core.list_namespaced_pod, chosen)

    def label_pod(self, name: str, key: str, value: str) -> None:
        """Set one label of a pod."""
        with answers(f"Pod {name}"):
            self._core.patch_namespaced_pod(
                name,
                self._namespace,
                {"metadata": {"labels": {key: value}}},
                field_manager=FIELD_MANAGER,
                _request_timeout=self._timeout_s,
            )

    def write_status(self, found: Manifest, status: Manifest) -> None:
        """Replace the status of one of our resources, even if its spec has changed meanwhile.

        A resource that was deleted and created again under that name has another uid and is left alone.
        """
        kind, name = resource_named(found["kind"]), found["metadata"]["name"]
        uid = found["metadata"].get("uid")
        same = [{"op": "test", "path": "/metadata/uid", "value": uid}] if uid else []
        with answers(f"status of {found['kind']} {name}"):
            self._custom.patch_namespaced_custom_object_status(
                GROUP,
                VERSION,
                self._namespace,
                kind.plural,
                name,
                [*same, {"op": "add", "path": "/status", "value": status}],
                field_manager=FIELD_MANAGER,
                _content_type="application/json-patch+json",
                _request_timeout=self._timeout_s,
            )

    def note(self, event: EventNote) -> None:
        """Write an Event."""
        metadata = event.about["metadata"]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {
            "metadata": {
                "name": f"{metadata['name'][:200].rstrip('-.')}.{uuid4().hex[:16]}",
                "namespace": self._namespace,
            },
            "involvedObject": {
                "apiVersion": event.about["apiVersion"],
                "kind": event.about["kind"],
                "name": metadata["name"],
                "namespace": self._namespace,
                "uid": metadata.get("uid", ""),
            },
            "reason": event.reason,
            "message": event.message,
            "type": "Warning" if event.warning else "Normal",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": FIELD_MANAGER},
        }
        with answers("Events"):
            self._core.create_namespaced_event(self._namespace, body, _request_timeout=self._timeout_s)

    def events(self, kind: str, name: str) -> list[Manifest]:
        """Newest Events about a resource, newest first: at, type, reason and message of each.

        For the command line; the operator's account has no permission to read Events.
        """
        kept = partial(_event_row, kind, name)
        found = self._listed("Events", self._core.list_namespaced_event, {}, kept)
        rows = [row for row in found if row is not None]
        return sorted(rows, key=lambda row: row["at"], reverse=True)[:_MOST_EVENTS]

    def read_config(self, name: str) -> Manifest | None:
        """A ConfigMap, None where there is none."""
        return self._one(f"ConfigMap {name}", self._core.read_namespaced_config_map, name)

    def write_config(self, config: Manifest) -> None:
        """Create or replace a ConfigMap."""
        name = config["metadata"]["name"]
        with answers(f"ConfigMap {name}"):
            try:
                self._core.replace_namespaced_config_map(
                    name, self._namespace, config, _request_timeout=self._timeout_s
                )
            except client.ApiException as error:
                if error.status == HTTPStatus.FORBIDDEN:
                    self._write_owned(config)
                    return
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
                self._core.create_namespaced_config_map(
                    self._namespace, config, _request_timeout=self._timeout_s
                )

    def _write_owned(self, config: Manifest) -> None:
        """Replace a ConfigMap and keep its owner reference.

        A policy that was created anew would need a new owner, but with the admission plugin
        OwnerReferencesPermissionEnforcement only accounts that may delete an object can change its owner.
        """
        name = config["metadata"]["name"]
        found = self._core.read_namespaced_config_map(name, self._namespace, _request_timeout=self._timeout_s)
        owners = self._api.sanitize_for_serialization(found.metadata.owner_references or [])
        owned = {**config, "metadata": {**config["metadata"], "ownerReferences": owners}}
        self._core.replace_namespaced_config_map(
            name, self._namespace, owned, _request_timeout=self._timeout_s
        )

    def _all(self, kind: str) -> dict[str, Manifest]:
        """Objects of ``kind`` by name."""
        method = partial(self._custom.list_namespaced_custom_object, GROUP, VERSION)
        found = self._listed(f"{kind}s", method, {"plural": resource_named(kind).plural}, _unmanaged)
        own = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind}
        return {one["metadata"]["name"]: {**own, **one} for one in found}

    def _custom_object(self, told: str, what: Mapping[str, str]) -> Manifest | None:
        """A custom resource, None if there is none. what: its group, version, plural and name."""
        with answers(told):
            try:
                found: Manifest = self._custom.get_namespaced_custom_object(
                    **what, namespace=self._namespace, _request_timeout=self._timeout_s
                )
            except client.ApiException as error:
                if error.status == HTTPStatus.NOT_FOUND:
                    return None
                raise
        return found

    def _many(self, what: str, method: Callable[..., Any], selector: str) -> list[Manifest]:
        return self._listed(what, method, {"label_selector": selector}, _unmanaged)

    def _listed(
        self,
        what: str,
        method: Callable[..., Any],
        asked: Mapping[str, str],
        kept: Callable[[Manifest], _Kept],
    ) -> list[_Kept]:
        """``kept`` of every object that ``method`` lists; each page has the timeout ``timeout_s``."""
        ask = partial(method, self._namespace, **asked, _request_timeout=self._timeout_s)
        with answers(what):
            return listed(ask, kept).objects

    def _one(self, what: str, method: Callable[..., Any], name: str) -> Manifest | None:
        with answers(what):
            try:
                found = method(name, self._namespace, _request_timeout=self._timeout_s)
            except client.ApiException as error:
                if error.status == HTTPStatus.NOT_FOUND:
                    return None
                raise
        plain: Manifest = self._api.sanitize_for_serialization(found)
        return plain


def _unmanaged(found: Manifest) -> Manifest:
    """``found`` without ``managedFields``, which may be most of an object and are not used."""
    found["metadata"].pop("managedFields", None)
    return found


def _event_row(kind: str, name: str, found: Manifest) -> dict[str, str] | None:
    """The row of an Event about the resource ``kind`` ``name``; None if it is about another one."""
    about = found.get("involvedObject") or {}
    if (about.get("kind"), about.get("name")) != (kind, name):
        return None
    told = {key: str(found.get(key) or "") for key in ("type", "reason", "message")}
    return {"at": str(found.get("lastTimestamp") or found.get("eventTime") or ""), **told}
