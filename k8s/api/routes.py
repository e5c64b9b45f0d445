"""HTTPRoutes of one namespace, by the official client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from kubernetes import client

from k8s.routes.writer import Conflict, Manifest

_GROUP, _VERSION, _PLURAL = "gateway.networking.k8s.io", "v1", "httproutes"
#: The manager that ``metadata.managedFields`` names for what the operator writes.
FIELD_MANAGER = "selvage"


class ApiRoutes:
    """``k8s.routes.writer.Routes`` on an API server."""

    def __init__(self, api: client.ApiClient, namespace: str, timeout_s: float = 5.0) -> None:
        self._objects = client.CustomObjectsApi(api)
        self._place = {"group": _GROUP, "version": _VERSION, "namespace": namespace, "plural": _PLURAL}
        self._timeout_s = timeout_s

    def read(self, name: str) -> Manifest | None:
        """The route, None if there is none."""
        try:
            return self._call("get_namespaced_custom_object", name=name)
        except client.ApiException as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    def create(self, route: Manifest) -> Manifest:
        """Create the route; raises ``Conflict`` if it already exists."""
        with _conflicts():
            return self._call("create_namespaced_custom_object", body=route, field_manager=FIELD_MANAGER)

    def replace(self, route: Manifest, *, trial: bool = False) -> Manifest:
        """Replace the route; raises ``Conflict`` if its resourceVersion is not the newest. trial: dry run."""
        asked = {"body": route, "field_manager": FIELD_MANAGER, **({"dry_run": "All"} if trial else {})}
        with _conflicts():
            return self._call("replace_namespaced_custom_object", name=route["metadata"]["name"], **asked)

    def _call(self, method: str, **arguments: Any) -> Manifest:
        found: Manifest = getattr(self._objects, method)(
            **self._place, **arguments, _request_timeout=self._timeout_s
        )
        return found


@contextmanager
def _conflicts() -> Iterator[None]:
    try:
        yield
    except client.ApiException as error:
        if error.status == HTTPStatus.CONFLICT:
            raise Conflict(str(error.reason)) from error
        raise
