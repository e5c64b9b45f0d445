"""``RoutePolicy``: which policy decides for which route, observing or enforcing, inside which shield."""

from __future__ import annotations

from typing import Literal

from contracts.documents.envelope import (
    DnsName,
    Document,
    FileRef,
    Name,
    NonNegative,
    Positive,
    PositiveCount,
    Ratio,
    Strict,
    Text,
    Uri,
)


class ShieldSettings(Strict):
    """Limits that hold whatever the policy proposes."""

    max_weight_move_per_tick: Ratio = 0.25
    min_dwell_s: NonNegative = 30.0
    new_kernel_traffic_ratio: Ratio = 0.05
    min_ready_replicas: PositiveCount = 1


class OwnedRoute(Strict):
    """The HTTPRoute that is owned whole."""

    name: DnsName
    namespace: DnsName | None = None
    slice_header: Name = "x-selvage-slice"


class RoutePolicySpec(Strict):
    """A policy in charge."""

    description: Text
    policy: Name
    artifact: FileRef | None = None
    """A ``PolicyArtifact`` document; absent for built-in policies."""
    mode: Literal["observe", "enforce"] = "observe"
    tick_s: Positive = 1.0
    pool: Name
    contract: Name
    meta_contract: Uri
    shield: ShieldSettings = ShieldSettings()
    route: OwnedRoute


class RoutePolicy(Document):
    """A policy bound to a route."""

    kind: Literal["RoutePolicy"] = "RoutePolicy"
    spec: RoutePolicySpec
