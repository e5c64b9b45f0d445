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

#: Probes in a row without an answer in time that tell a hang: one may be lost, two may share a stall.
HANG_TIMEOUTS = 3
#: What a replica's step times are held against.
HeldAgainst = Literal["certified", "usual", "off"]


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
    max_load_ratio: Positive = 1.05
    """Load over capacity above which traffic overflows to others and is then shed. A derived capacity is 0.8
    of the steady-state limit, so at 1.25 queues grow without end."""
    max_shed_ratio: Ratio = 0.5
    """Share of a slice that a policy may shed although a certified kernel has headroom."""
    min_ready_replicas: PositiveCount = 1
    """A kernel with fewer replicas in rotation takes no traffic."""


class OwnedRoute(Strict):
    """The HTTPRoute that is owned whole."""

    name: DnsName
    """Of the HTTPRoute."""
    namespace: DnsName | None = None
    """Must be the policy's own; absent: that one."""
    slice_header: Name = "x-selvage-slice"
    """Request header whose value names the slice."""


class PinnedWeight(Strict):
    """One kernel's share of a pinned slice."""

    kernel: Name
    """A kernel of the pool."""
    weight: Ratio
    """Of the slice's requests, 0..1; a row adds up to 1."""


class PinnedRow(Strict):
    """One slice of a pinned table; kernels that are not named get nothing."""

    slice: Name
    """A slice of the contract."""
    weights: Annotated[tuple[PinnedWeight, ...], Field(min_length=1, max_length=15)]
    """Shares of its kernels."""


class Freeze(Strict):
    """Break-glass: weights are frozen until an instant. Hard clauses still warn."""

    until: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$", max_length=20)]
    """Instant in UTC, as 2030-01-31T18:00:00Z; then the policy drives again."""
    reason: Text
    """Who froze it, and why."""
    table: Annotated[tuple[PinnedRow, ...], Field(min_length=1, max_length=16)] | None = None
    """Put in force meanwhile; slices that are not named, and all without it, stay as they are."""


class RoutePolicySpec(Strict):
    """Which policy decides for a route, behind which shield, under which meta-contract."""

    description: Text
    """What this policy decides, for people."""
    policy: Name
    """The policy that proposes routing tables, by its registered name, for example hysteresis or learned."""
    artifact: FileRef | None = None
    """A ``PolicyArtifact`` document; absent for built-in policies."""
    mode: Literal["observe", "enforce"] = "observe"
    """observe: decide and write nothing but status; enforce: move weights."""
    tick_s: Positive = 1.0
    """Seconds from one decision to the next."""
    pool: Name
    """Name of the ``KernelPool``."""
    contract: Name
    """Name of the ``KernelContract``."""
    meta_contract: Uri
    """The ``MetaContract`` that the policy itself must keep: a path, a ``package:`` or an ``oci://`` URI."""
    meta_contract_sha256: Sha256 | None = None
    """Of its canonical form, as `selvage contract validate` prints it; absent: pinned by the artefact's
    certificate alone, or for a built-in policy not at all."""
    signed_by: Sha256 | None = None
    """Public ed25519 key in hex, as `selvage policy sign` prints it: the artifact's manifest, and the
    certificate of the baseline beside a meta-contract that is no ``package:`` URI, must be signed by it."""
    shield: ShieldSettings = ShieldSettings()
    hang_timeouts: Annotated[int, Field(ge=0, le=100)] = HANG_TIMEOUTS
    """Probes in a row without an answer in time after which a replica that holds requests and makes no step
    hangs: it is quarantined and its open streams are reset (a count; 0: probes are not asked)."""
    own_clocks: HeldAgainst | None = None
    """What a replica's step times are compared with. certified: those of its profile, measured on such a
    machine with no other load; usual: its own past; off: nothing. Absent: certified in the simulator, usual
    elsewhere."""
    route: OwnedRoute
    freeze: Freeze | None = None
    """Break-glass of a cluster; worlds without an operator ignore it."""
    suspend: bool | None = None
    """True: the operator leaves route and servers alone and only says so; absent: false."""


class RoutePolicy(Document):
    """A policy bound to a route."""

    kind: Literal["RoutePolicy"] = "RoutePolicy"
    spec: RoutePolicySpec
