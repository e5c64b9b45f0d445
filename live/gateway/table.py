"""A routing plan as the gateway executes it: endpoints with integer weights for each slice. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import FleetLayout
from contracts.rules.policy import SUM_TOLERANCE
from controller.healing.machine import held_back
from live.errors import PlanError

#: Sum of a slice's weights, approximately; shares are reproduced to within one in a hundred thousand.
WEIGHT_SCALE = 1_000_000
PER_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Address of one replica: an IP address and a port, plain HTTP."""

    replica: str
    kernel: str
    address: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedUpstream:
    """A replica with its weight, at least 1; replicas of weight 0 are left out."""

    upstream: Upstream
    weight: int

    def __post_init__(self) -> None:
        """Refuse weights that Envoy would refuse."""
        if not 1 <= self.weight <= WEIGHT_SCALE:
            raise PlanError(
                f"{self.upstream.replica}: expected a weight of 1 to {WEIGHT_SCALE}, got {self.weight}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRoute:
    """Routing of one slice. shed_per_million: of a million requests, those answered 429 immediately."""

    slice: str
    endpoints: tuple[WeightedUpstream, ...]
    shed_per_million: int = 0

    def __post_init__(self) -> None:
        """Refuse shares outside a million and replicas listed twice."""
        if not 0 <= self.shed_per_million <= PER_MILLION:
            raise PlanError(
                f"{self.slice}: expected to shed 0 to 1,000,000 per million, got {self.shed_per_million}"
            )
        names = [endpoint.upstream.replica for endpoint in self.endpoints]
        if len(set(names)) != len(names):
            raise PlanError(f"{self.slice}: a replica is listed twice in {', '.join(names)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowRoute:
    """A share of a slice's requests is mirrored to a kernel; no client waits for the answers."""

    slice: str
    kernel: str
    ratio: float

    def __post_init__(self) -> None:
        """Refuse a ratio outside 0..1."""
        if not 0.0 <= self.ratio <= 1.0:
            raise PlanError(
                f"shadow of {self.slice} on {self.kernel}: expected a ratio of 0 to 1, got {self.ratio}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayTable:
    """Everything that a plan decides. default_slice: for requests without a known header."""

    version: int
    routes: tuple[SliceRoute, ...]
    default_slice: str
    shadows: tuple[ShadowRoute, ...] = ()
    #: Replicas that receive mirrored requests, of all kernels.
    shadow_upstreams: tuple[Upstream, ...] = ()

    def __post_init__(self) -> None:
        """Refuse slices that are routed twice or not at all."""
        slices = [route.slice for route in self.routes]
        if len(set(slices)) != len(slices):
            raise PlanError(f"a slice is routed twice in {', '.join(slices)}")
        for named in (self.default_slice, *(shadow.slice for shadow in self.shadows)):
            if named not in slices:
                raise PlanError(f"slice {named!r} has no route; there are {', '.join(slices)}")
        copied = [shadow.slice for shadow in self.shadows]
        if len(set(copied)) != len(copied):
            raise PlanError("a slice is shadowed twice; name one kernel per slice")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRotation:
    """The replicas that may serve. in_rotation: bool [R], from the plan; upstreams: reachable ones, by name.

    shares: replica under re-admission -> share of its full traffic, 0..1; other replicas get their full
    traffic.
    """

    in_rotation: NDArray[np.bool_]  # [R], as the plan says
    upstreams: Mapping[str, Upstream]
    shares: Mapping[str, float] = field(default_factory=dict)

    def serving(self, layout: FleetLayout) -> NDArray[np.bool_]:
        """Bool [R]: in rotation and reachable."""
        reachable = np.array([name in self.upstreams for name in layout.replicas], dtype=np.bool_)
        return self.in_rotation & reachable

    def share(self, replica: str) -> float:
        """Share of its full traffic that ``replica`` gets."""
        return self.shares.get(replica, 1.0)


def slice_routes(
    table: NDArray[np.float64], rotation: GatewayRotation, layout: FleetLayout, *, allow_empty: bool = False
) -> tuple[SliceRoute, ...]:
    """``table`` [S, K + 1], last column shed, as routes in the layout's order of slices.

    A kernel's share is split evenly over its reachable replicas in rotation. If it has none, its share is
    distributed over the row's other kernels in proportion. Replicas under re-admission get the shares of
    ``controller.healing.machine.held_back``. Raises PlanError for rows that are not valid shares and, unless
    ``allow_empty``, for a slice that is not all shed and would have no endpoint.
    """
    kernels, slices, replicas = layout.shape
    if table.shape != (slices, kernels + 1) or rotation.in_rotation.shape != (replicas,):
        raise PlanError(
            f"expected a table of {(slices, kernels + 1)} and a rotation of {(replicas,)},"
            f" got {table.shape} and {rotation.in_rotation.shape}"
        )
    _check_rows(table, layout.slices)
    serving = _serving(rotation, layout)
    if rotation.shares:
        shares = np.array([rotation.share(name) for name in layout.replicas])
        table = held_back(table, rotation.serving(layout), shares, layout.replica_kernel)
    routes = tuple(_route(name, row, serving) for name, row in zip(layout.slices, table, strict=True))
    empty = [route.slice for route in routes if not route.endpoints and route.shed_per_million < PER_MILLION]
    if empty and not allow_empty:
        raise PlanError(
            f"no replica in rotation for {', '.join(empty)}; keep the last table, or shed the slice"
        )
    return routes


def _check_rows(table: NDArray[np.float64], slices: Sequence[str]) -> None:
    for name, row in zip(slices, table, strict=True):
        if not np.isfinite(row).all() or (row < 0.0).any() or abs(row.sum() - 1.0) > SUM_TOLERANCE:
            raise PlanError(f"{name}: expected shares that sum to 1, got {row.tolist()}")


def _serving(rotation: GatewayRotation, layout: FleetLayout) -> list[list[tuple[Upstream, float]]]:
    """Reachable replicas in rotation of every kernel [K], each with its part of the kernel's share.

    If all of a kernel's replicas have share 0, what the table leaves to the kernel is split evenly.
    """
    found: list[list[tuple[Upstream, float]]] = [[] for _ in layout.kernels]
    for index in np.flatnonzero(rotation.serving(layout)):
        name = layout.replicas[index]
        there = found[int(layout.replica_kernel[index])]
        there.append((rotation.upstreams[name], rotation.share(name)))
    return [_parts(there) for there in found]


def _parts(there: list[tuple[Upstream, float]]) -> list[tuple[Upstream, float]]:
    whole = sum(share for _, share in there)
    if not whole > 0.0:
        return [(upstream, 1.0 / len(there)) for upstream, _ in there]
    return [(upstream, share / whole) for upstream, share in there if share > 0.0]


def _route(name: str, row: NDArray[np.float64], serving: list[list[tuple[Upstream, float]]]) -> SliceRoute:
    carried = sum(float(share) for share, there in zip(row[:-1], serving, strict=True) if there)
    endpoints = [
        WeightedUpstream(
            upstream=upstream, weight=max(1, round(WEIGHT_SCALE * float(share) / carried * part))
        )
        for share, there in zip(row[:-1], serving, strict=True)
        if share > 0.0
        for upstream, part in there
    ]
    return SliceRoute(
        slice=name, endpoints=tuple(endpoints), shed_per_million=round(PER_MILLION * float(row[-1]))
    )
