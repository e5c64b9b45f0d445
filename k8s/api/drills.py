"""``k8s.operator.drills.cluster.DrillCluster`` by the official client: what drills change in a namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus

from kubernetes import client

from k8s.api.cluster import ApiCluster
from k8s.api.connection import answers
from k8s.operator.drills.cluster import FINALIZER
from k8s.operator.drills.pods import CHAOS_GROUP, CHAOS_PLURAL, CHAOS_VERSION
from k8s.operator.objects import Manifest
from k8s.resources.kinds import GROUP, VERSION, resource_named

_PLURAL = resource_named("FaultDrill").plural


class ApiDrillCluster(ApiCluster):
    """One namespace, as drills use it. Every call has the timeout ``timeout_s``."""

    def __init__(self, api: client.ApiClient, namespace: str, timeout_s: float = 5.0) -> None:
        super().__init__(api, namespace, timeout_s)
        self._place = (CHAOS_GROUP, CHAOS_VERSION, namespace, CHAOS_PLURAL)

    def drills(self) -> dict[str, Manifest]:
        """Every FaultDrill by name."""
        return self._all("FaultDrill")

    def hold(self, drill: Manifest, held: bool) -> None:
        """Add the finalizer to ``drill``, or remove it; removing it from a deleted drill is no error.

        Checks the uid, so that a later drill of the same name is left alone.
        """
        metadata = drill["metadata"]
        others = [one for one in metadata.get("finalizers") or [] if one != FINALIZER]
        body = {"metadata": {"uid": metadata["uid"], "finalizers": [*others, FINALIZER] if held else others}}
        with (
            answers(f"FaultDrill {metadata['name']}"),
            _unless(() if held else (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)),
        ):
            self._custom.patch_namespaced_custom_object(
                GROUP,
                VERSION,
                self.namespace,
                _PLURAL,
                metadata["name"],
                body,
                _content_type="application/merge-patch+json",
                _request_timeout=self._timeout_s,
            )

    def delete_pod(self, name: str, uid: str) -> None:
        """Delete the pod with this uid without grace period; no error if it is gone or was replaced."""
        options = client.V1DeleteOptions(
            grace_period_seconds=0, preconditions=client.V1Preconditions(uid=uid)
        )
        with answers(f"Pod {name}"), _unless((HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)):
            self._core.delete_namespaced_pod(
                name,
                self.namespace,
                body=options,
                _request_timeout=self._timeout_s,
                _preload_content=False,  # the server answers with a Status, which the client takes for a pod
            ).release_conn()

    def has_chaos_mesh(self) -> bool:
        """Whether the definitions of Chaos Mesh are installed."""
        with answers("NetworkChaos"):
            found = _unless_gone(
                lambda: self._custom.list_namespaced_custom_object(
                    *self._place, limit=1, _request_timeout=self._timeout_s
                )
            )
        return found is not None

    def create_chaos(self, chaos: Manifest) -> None:
        """Create a NetworkChaos; no error if it exists."""
        with answers("NetworkChaos"), _unless((HTTPStatus.CONFLICT,)):
            self._custom.create_namespaced_custom_object(
                *self._place, chaos, _request_timeout=self._timeout_s
            )

    def delete_chaos(self, name: str) -> None:
        """Delete a NetworkChaos; no error if it is gone."""
        with answers(f"NetworkChaos {name}"), _unless((HTTPStatus.NOT_FOUND,)):
            self._custom.delete_namespaced_custom_object(*self._place, name, _request_timeout=self._timeout_s)

    def chaos(self, name: str) -> Manifest | None:
        """A NetworkChaos, None if there is none."""
        with answers(f"NetworkChaos {name}"):
            return _unless_gone(
                lambda: self._custom.get_namespaced_custom_object(
                    *self._place, name, _request_timeout=self._timeout_s
                )
            )


def _unless_gone(ask: Callable[[], Manifest]) -> Manifest | None:
    """The answer of ``ask``; None if there is no object of that name, or no such kind."""
    try:
        return ask()
    except client.ApiException as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise


@contextmanager
def _unless(statuses: tuple[int, ...]) -> Iterator[None]:
    """End the block without an error when the server answers with one of ``statuses``."""
    try:
        yield
    except client.ApiException as error:
        if error.status not in statuses:
            raise
