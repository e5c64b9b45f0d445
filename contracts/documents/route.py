"""``RoutePolicy``: which policy decides for which route, observing or enforcing, inside which shield."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contracts.documents.envelope import (
    DnsName,
    Document,
    FileRef,
    Name,
    NonNegative,
    Positive,
    PositiveCount,
    Ratio,
    Sha256,
    Strict,
    Text,
    Uri,
)


class ShieldSettings(Strict):
    """Limits that hold whatever the policy proposes."""

    max_weight_move_per_tick: Annotated[float, Field(gt=0.0, le=1.0)] = 0.25
    """Largest part of a slice's row, as half L1, that moves in one tick of the policy's own will."""
    min_dwell_s: NonNegative = 30.0
    """From the begin of one such move of a slice to the begin of the next."""
    new_kernel_traffic_ratio: Ratio = 0.05
    """Largest weight of a kernel at stage ``canary`` on a slice."""
    new_kernel_least_ratio: Ratio = 0.01
    """Least weight of such a kernel where it is certified, so that evidence comes in."""
    max_load_ratio: Positive = 1.1
    """Load over capacity above which traffic overflows to others and is then shed. A derived capacity is 0.8
    of the steady-state limit, so at 1.25 queues grow without end."""
    max_shed_ratio: Ratio = 0.5
    """Share of a slice that a policy may shed although a certified kernel has headroom."""
    min_ready_replicas: PositiveCount = 1
    """A kernel with fewer replicas in rotation takes no traffic."""


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
    meta_contract_sha256: Sha256 | None = None
    """Of its canonical form, as `selvage contract validate` prints it; absent: pinned by the artefact's
    certificate alone, or for a built-in policy not at all."""
    signed_by: Sha256 | None = None
    """Public ed25519 key in hex, as `selvage policy sign` prints it: the artifact's manifest, and the
    certificate of the baseline beside a meta-contract that is no ``package:`` URI, must be signed by it."""
    shield: ShieldSettings = ShieldSettings()
    route: OwnedRoute


class RoutePolicy(Document):
    """A policy bound to a route."""

    kind: Literal["RoutePolicy"] = "RoutePolicy"
    spec: RoutePolicySpec
