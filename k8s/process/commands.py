"""``selvage status|explain --kubernetes`` and ``selvage pin|freeze|unpin|unfreeze``.

They show what the operator wrote into the cluster; pin and freeze set ``spec.freeze`` of a RoutePolicy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from contracts.errors import DocumentError, refusal
from k8s.api.break_glass import PolicyName, break_glass, mend_glass
from k8s.api.cluster import ApiCluster
from k8s.api.connection import cluster_client
from k8s.operator.objects import Manifest
from k8s.operator.status.conditions import BAD_WHEN_TRUE, NEUTRAL
from k8s.operator.status.recent import RecentDecision, decisions_in

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
#: Longest break-glass. For more, renew it or set ``mode: observe``.
LONGEST = timedelta(days=7)


def freeze_until(text: str, now: datetime) -> str:
    """Instant at which the duration ``text`` (2h, 1h30m) ends; DocumentError for anything else."""
    match = _DURATION.fullmatch(text.strip())
    days, hours, minutes, seconds = (int(one or 0) for one in match.groups()) if match else (0, 0, 0, 0)
    lasts = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    if not timedelta(0) < lasts <= LONGEST:
        expected = f"a duration up to {LONGEST.days}d, as 30m or 2h"
        raise _refusal("--for", expected, repr(text), "say how long; it ends by itself")
    return (now.astimezone(UTC) + lasts).strftime("%Y-%m-%dT%H:%M:%SZ")


def pinned_rows(rows: Sequence[str]) -> list[dict[str, Any]]:
    """``SLICE=KERNEL`` or ``SLICE=KERNEL:0.8,KERNEL:0.2`` as rows of a pinned table."""
    return [_row(text) for text in rows]


def freeze(policy: PolicyName, lasts: str, reason: str, rows: Sequence[str] = ()) -> str:
    """Freeze a policy, or pin ``rows``; returns the line to print. Raises ClusterError or DocumentError."""
    until = freeze_until(lasts, datetime.now(UTC))
    if not reason.strip():
        raise _refusal("--reason", "who does it and why", "nothing", "it stands in the resource for others")
    table = {"table": pinned_rows(rows)} if rows else {}
    with cluster_client() as api:
        break_glass(api, policy, {"until": until, "reason": reason, **table})
    what = "pinned" if rows else "frozen"
    return f"{policy.name}: {what} until {until}; no weights are moved, hard clauses still warn"


def unfreeze(policy: PolicyName, pinned: bool) -> str:
    """End break-glass; returns the line to print. Raises ClusterError."""
    with cluster_client() as api:
        was = mend_glass(api, policy, pinned)
    return f"{policy.name}: drives again; it was held until {was['until']} ({was['reason']})"


def _row(text: str) -> dict[str, Any]:
    name, equals, given = text.partition("=")
    parts = [one.strip().partition(":") for one in given.split(",")]
    try:
        weights = [{"kernel": kernel, "weight": float(share or 1.0)} for kernel, _, share in parts]
    except ValueError:
        weights = []
    if not (name.strip() and equals and weights and all(one["kernel"] for one in weights)):
        expected = "SLICE=KERNEL or SLICE=KERNEL:0.8,KERNEL:0.2"
        raise _refusal("ROWS", expected, repr(text), "name each slice that shall be held")
    return {"slice": name.strip(), "weights": weights}


def _refusal(path: str, expected: str, actual: str, next_step: str) -> DocumentError:
    return refusal("selvage kubernetes", expected, actual, next_step, path=path)


def status_lines(namespace: str) -> list[str]:
    """Status of every policy of ``namespace``. Raises ClusterError if the server does not answer."""
    with cluster_client() as api:
        found = ApiCluster(api, namespace).resources().policies
    if not found:
        return [f"no RoutePolicy in namespace {namespace}"]
    return [line for name in sorted(found) for line in policy_lines(name, found[name])]


def explained_lines(name: str, namespace: str) -> list[str]:
    """Status, newest decisions and Events of one policy. Raises ClusterError or DocumentError.

    Reads only the resource and its Events, so it needs no permission on pods.
    """
    with cluster_client() as api:
        cluster = ApiCluster(api, namespace)
        found = cluster.resources().policies
        if name not in found:
            there = ", ".join(sorted(found)) or "none"
            raise _refusal(name, f"a RoutePolicy of namespace {namespace}", there, "name one of these")
        events = cluster.events("RoutePolicy", name)
    decisions = decisions_in(found[name].get("status") or {})
    return [*policy_lines(name, found[name]), *decision_lines(decisions), *event_lines(events)]


def decision_lines(found: Iterable[RecentDecision]) -> Iterator[str]:
    """Lines of the newest decisions, and where to find their evidence."""
    found = list(found)
    yield "newest decisions:" if found else "no decision moved anything since the operator began"
    for one in found:
        first, *rest = one.told.split("\n")
        yield f"  {one.at}  {first}"
        yield from (f"    {line}" for line in rest)
    if found:
        yield "evidence stands in the decision log: docs/kubernetes.md says how to copy it"


def event_lines(found: Sequence[Manifest]) -> Iterator[str]:
    """Lines of a policy's Events, newest first."""
    yield "newest events:" if found else "no events"
    for one in found:
        yield f"  {one['at']}  {one['type']} {one['reason']}: {one['message']}"


def policy_lines(name: str, found: dict[str, Any]) -> Iterator[str]:
    """Lines of one policy: its mode and driver, the weights of each slice, and conditions that are bad."""
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
