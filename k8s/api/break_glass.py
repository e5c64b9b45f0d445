"""Break-glass by hand: ``spec.freeze`` of a RoutePolicy, with the rights of the caller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubernetes import client

from k8s.api.cluster import ApiCluster
from k8s.api.connection import answers
from k8s.operator.admission import judge_policy
from k8s.operator.objects import ClusterError, Manifest, Resources
from k8s.resources.kinds import GROUP, VERSION, resource_named

_MERGE = "application/merge-patch+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyName:
    """One RoutePolicy."""

    namespace: str
    name: str


def break_glass(api: client.ApiClient, policy: PolicyName, freeze: Manifest) -> None:
    """Set ``spec.freeze``. ClusterError if it is refused; then nothing has changed."""
    seen = ApiCluster(api, policy.namespace).resources()
    found = _policy(seen, policy)
    wanted = {**found, "spec": {**found["spec"], "freeze": freeze}}
    verdict = judge_policy(
        policy.name,
        Resources(
            contracts=seen.contracts, pools=seen.pools, policies={**seen.policies, policy.name: wanted}
        ),
        policy.namespace,
    )
    for one in (verdict.accepted, verdict.resolved):
        if one.status == "False":
            raise ClusterError(f"{policy.name} is left as it was: {one.message}")
    _patch(api, policy, found, {"freeze": freeze})


def mend_glass(api: client.ApiClient, policy: PolicyName, pinned: bool) -> Manifest:
    """Remove ``spec.freeze`` and return it. ``pinned``: only if it pins a table, else ClusterError."""
    found = _policy(ApiCluster(api, policy.namespace).resources(), policy)
    freeze = found["spec"].get("freeze")
    if freeze is None:
        raise ClusterError(f"{policy.name} is not frozen, so nothing is taken away")
    if pinned and not freeze.get("table"):
        raise ClusterError(f"{policy.name} is frozen and pins nothing; selvage unfreeze ends it")
    _patch(api, policy, found, {"freeze": None})
    return dict(freeze)


def _policy(seen: Resources, policy: PolicyName) -> Manifest:
    if policy.name not in seen.policies:
        known = ", ".join(sorted(seen.policies)) or "none"
        raise ClusterError(
            f"there is no RoutePolicy {policy.name} in namespace {policy.namespace} (there are: {known})"
        )
    return seen.policies[policy.name]


def _patch(api: client.ApiClient, policy: PolicyName, found: Manifest, spec: dict[str, Any]) -> None:
    """Patch the version that was read; if another writer has changed it, the server answers 409."""
    body = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "spec": spec}
    with answers(f"RoutePolicy {policy.name}"):
        client.CustomObjectsApi(api).patch_namespaced_custom_object(
            GROUP,
            VERSION,
            policy.namespace,
            resource_named("RoutePolicy").plural,
            policy.name,
            body,
            _content_type=_MERGE,
            field_validation="Strict",
            _request_timeout=10.0,
        )
