"""``selvage kubernetes status``: what the operator wrote, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from k8s.api.cluster import ApiCluster
from k8s.operator.conditions import BAD_WHEN_TRUE, NEUTRAL
from k8s.process.clients import cluster_client


def status_lines(namespace: str) -> list[str]:
    """Of every policy of ``namespace``. Raises ClusterError where the server does not answer."""
    with cluster_client() as api:
        found = ApiCluster(api, namespace).resources().policies
    if not found:
        return [f"no RoutePolicy in namespace {namespace}"]
    return [line for name in sorted(found) for line in policy_lines(name, found[name])]


def policy_lines(name: str, found: dict[str, Any]) -> Iterator[str]:
    """One policy: who drives, its slices, and the conditions that want attention."""
    status = found.get("status") or {}
    if not status:
        yield f"{name}: no operator has seen it yet"
        return
    driving = status.get("driving", "nobody")
    mode = found["spec"].get("mode", "observe")
    yield f"{name}: {mode}, {driving} drives, table {status.get('version', 0)}"
    for row in status.get("slices") or []:
        weights = ", ".join(
            f"{one['name']} {one['weight']:.0%}" for one in row.get("weights") or [] if one["weight"]
        )
        shed = f", refused {row['shed']:.0%}" if row.get("shed") else ""
        yield f"  {row['name']}: {weights or 'nothing'}{shed}"
    for one in status.get("conditions") or []:
        bad = "True" if one["type"] in BAD_WHEN_TRUE else "False"
        if one["status"] == bad and one["type"] not in NEUTRAL:
            yield f"  {one['type']} {one['status']} ({one['reason']}): {one['message']}"
