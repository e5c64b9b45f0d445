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

#: Consecutive unanswered probes that indicate a hang: one may be lost, and two may fall into one stall.
HANG_TIMEOUTS = 3
#: What a replica's step times are compared with.
HeldAgainst = Literal["certified", "usual", "off"]


class ShieldSettings(Strict):
    """Limits that the shield enforces on every proposal of the policy."""

    max_weight_move_per_tick: Annotated[float, Field(gt=0.0, le=1.0)] = 0.25
    """Largest part of a slice's row, as half the L1 distance, that a voluntary move shifts in one tick."""
    min_dwell_s: NonNegative = 30.0
    """Shortest time from the start of one voluntary move of a slice to the start of the next, s."""
    new_kernel_traffic_ratio: Ratio = 0.05
    """Largest weight on a slice of a kernel at stage ``canary``, 0..1."""
    new_kernel_least_ratio: Ratio = 0.01
    """Smallest weight on a slice of a certified kernel at stage ``canary``, 0..1, so that evidence
    accumulates."""
    max_load_ratio: Positive = 1.05
    """Load over capacity above which traffic overflows to other kernels and is then shed. A derived capacity
    is 0.8 of the steady-state limit, so at a ratio of 1.25 queues grow without bound."""
    max_shed_ratio: Ratio = 0.5
    """Largest share of a slice that a policy may shed while a certified kernel has headroom, 0..1."""
    min_ready_replicas: PositiveCount = 1
    """Fewest replicas in rotation with which a kernel takes traffic, a count."""


class OwnedRoute(Strict):
    """The HTTPRoute that the operator owns and writes."""

    name: DnsName
    """Name of the HTTPRoute."""
    namespace: DnsName | None = None
    """Namespace of the HTTPRoute, which must be the policy's own; absent: the policy's namespace."""
    slice_header: Name = "x-selvage-slice"
    """Request header whose value names the slice."""


class PinnedWeight(Strict):
    """Weight of one kernel on a pinned slice."""

    kernel: Name
    """Name of a kernel of the pool."""
    weight: Ratio
    """Share of the slice's requests, 0..1; the weights of a slice add up to 1."""


class PinnedRow(Strict):
    """Row of one slice in a pinned table; kernels that the row does not name get no traffic."""

    slice: Name
    """Name of a slice of the contract."""
    weights: Annotated[tuple[PinnedWeight, ...], Field(min_length=1, max_length=15)]
    """Weights of the kernels that serve the slice."""


class Freeze(Strict):
    """Break-glass: weights are frozen until a given time. Breaches of hard clauses are still reported."""

    until: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$", max_length=20)]
    """Time at which the freeze ends, in UTC, for example 2030-01-31T18:00:00Z; then the policy drives
    again."""
    reason: Text
    """Who froze the weights and why, as text for people."""
    table: Annotated[tuple[PinnedRow, ...], Field(min_length=1, max_length=16)] | None = None
    """Weights in force during the freeze; slices without a row keep their present weights. Absent: all slices
    keep them."""


class RoutePolicySpec(Strict):
    """Which policy decides for a route, behind which shield and under which meta-contract."""

    description: Text
    """What the policy decides, as text for people."""
    policy: Name
    """Registered name of the policy that proposes routing tables, for example hysteresis or learned."""
    artifact: FileRef | None = None
    """``PolicyArtifact`` document of a trained policy; absent for built-in policies."""
    mode: Literal["observe", "enforce"] = "observe"
    """observe: decide and write only the status; enforce: also write the route's weights."""
    tick_s: Positive = 1.0
    """Time from one decision to the next, s."""
    pool: Name
    """Name of the ``KernelPool`` that the policy routes to."""
    contract: Name
    """Name of the ``KernelContract`` that the kernels must keep."""
    meta_contract: Uri
    """``MetaContract`` that the policy itself must keep: a path, a ``package:`` or an ``oci://`` URI."""
    meta_contract_sha256: Sha256 | None = None
    """SHA-256 of the meta-contract's canonical form, as `selvage contract validate` prints it. Absent: only
    the artefact's certificate pins the meta-contract; with a built-in policy nothing does."""
    signed_by: Sha256 | None = None
    """Public ed25519 key, in hex, as `selvage policy sign` prints it. The artefact's manifest must be signed
    by it, as must the baseline's certificate beside a meta-contract that is no ``package:`` URI. Absent: no
    signature is required."""
    shield: ShieldSettings = ShieldSettings()
    hang_timeouts: Annotated[int, Field(ge=0, le=100)] = HANG_TIMEOUTS
    """Consecutive probes without an answer in time after which a replica that holds requests and makes no
    step counts as hung, is quarantined, and has its open streams reset; a count. 0: hangs are not detected by
    probes."""
    own_clocks: HeldAgainst | None = None
    """What a replica's step times are compared with. certified: the step times in the profile, measured on
    the same kind of machine without other load; usual: the replica's own past; off: nothing. Absent:
    certified in the simulator, usual elsewhere."""
    route: OwnedRoute
    freeze: Freeze | None = None
    """Break-glass of a cluster, ignored without an operator; absent: weights are not frozen."""
    suspend: bool | None = None
    """True: the operator leaves the route and the servers alone, and its status says so; absent: false."""


class RoutePolicy(Document):
    """A policy that is bound to a route."""

    kind: Literal["RoutePolicy"] = "RoutePolicy"
    spec: RoutePolicySpec
