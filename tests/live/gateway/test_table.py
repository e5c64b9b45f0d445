"""A plan becomes endpoints with integer weights: shares are kept, quarantined replicas are left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from contracts.compiled.contract import FleetLayout
from contracts.telemetry import ReplicaState
from controller.ports import RoutingPlan
from live.errors import PlanError
from live.gateway.actuator import RoutingFrame, gateway_table, upstream_of
from live.gateway.table import (
    PER_MILLION,
    WEIGHT_SCALE,
    GatewayRotation,
    GatewayTable,
    ShadowRoute,
    SliceRoute,
    Upstream,
    WeightedUpstream,
    slice_routes,
)
from live.ports import LiveReplica


@st.composite
def worlds(draw: st.DrawFn) -> tuple[NDArray[np.float64], GatewayRotation, FleetLayout]:
    """A table [S, K + 1] with rows of shares, a rotation, and the layout of both."""
    kernels, slices = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    of = sorted(draw(st.lists(st.integers(0, kernels - 1), min_size=1, max_size=12)))
    names = tuple(f"r{n}" for n in range(len(of)))
    parts = st.lists(st.integers(0, 20), min_size=kernels + 1, max_size=kernels + 1).filter(any)
    rows = np.array([draw(parts) for _ in range(slices)], dtype=np.float64)
    ups = {
        name: Upstream(replica=name, kernel=f"k{kernel}", address="127.0.0.1", port=9000 + number)
        for number, (name, kernel) in enumerate(zip(names, of, strict=True))
        if draw(st.booleans())
    }
    rotation = np.array(draw(st.lists(st.booleans(), min_size=len(of), max_size=len(of))), dtype=np.bool_)
    layout = FleetLayout(
        kernels=tuple(f"k{n}" for n in range(kernels)),
        slices=tuple(f"s{n}" for n in range(slices)),
        replicas=names,
        replica_kernel=np.array(of, dtype=np.int64),
        probe_metrics=(),
        known_good=0,
    )
    return (
        rows / rows.sum(axis=1, keepdims=True),
        GatewayRotation(in_rotation=rotation, upstreams=ups),
        layout,
    )


def weight_of(route: SliceRoute, kernel: str) -> int:
    """Weights of one kernel's replicas."""
    return sum(one.weight for one in route.endpoints if one.upstream.kernel == kernel)


@given(world=worlds())
def test_shares_are_kept_among_kernels_that_can_serve(world: Any) -> None:
    """Ratios of weights of kernels with replicas equal those of their shares, to one in ten thousand."""
    table, rotation, layout = world
    for route, row in zip(slice_routes(table, rotation, layout, allow_empty=True), table, strict=True):
        total = sum(one.weight for one in route.endpoints)
        carried = sum(row[layout.kernels.index(k)] for k in {one.upstream.kernel for one in route.endpoints})
        for index, kernel in enumerate(layout.kernels):
            if weight_of(route, kernel):
                assert weight_of(route, kernel) / total == pytest.approx(row[index] / carried, abs=1e-4)
        assert route.shed_per_million == pytest.approx(PER_MILLION * row[-1], abs=0.5)


@given(world=worlds())
def test_only_replicas_in_rotation_with_a_share_are_listed(world: Any) -> None:
    """Listed are exactly the reachable replicas in rotation of kernels with a share, each weight in range."""
    table, rotation, layout = world
    for route, row in zip(slice_routes(table, rotation, layout, allow_empty=True), table, strict=True):
        wanted = {
            name
            for index, name in enumerate(layout.replicas)
            if rotation.in_rotation[index] and name in rotation.upstreams
            if row[layout.replica_kernel[index]] > 0.0
        }
        assert {one.upstream.replica for one in route.endpoints} == wanted
        assert all(1 <= one.weight <= WEIGHT_SCALE for one in route.endpoints)


@given(world=worlds())
def test_a_slice_is_never_left_empty_unasked(world: Any) -> None:
    """Without ``allow_empty`` either every slice that is not all shed has an endpoint, or nothing is made."""
    table, rotation, layout = world
    free = slice_routes(table, rotation, layout, allow_empty=True)
    empty = any(not route.endpoints and route.shed_per_million < PER_MILLION for route in free)
    if empty:
        with pytest.raises(PlanError, match="no replica in rotation"):
            slice_routes(table, rotation, layout)
    else:
        assert slice_routes(table, rotation, layout) == free


LAYOUT = FleetLayout(
    kernels=("a", "b"),
    slices=("s",),
    replicas=("a-0", "b-0"),
    replica_kernel=np.array([0, 1], dtype=np.int64),
    probe_metrics=(),
    known_good=0,
)
BOTH = {
    name: Upstream(replica=name, kernel=name[0], address="127.0.0.1", port=9000) for name in LAYOUT.replicas
}


def rotation(*places: bool) -> GatewayRotation:
    """Both replicas reachable, those of ``places`` in rotation."""
    return GatewayRotation(in_rotation=np.array(places, dtype=np.bool_), upstreams=BOTH)


@pytest.mark.parametrize(
    "row", [[0.5, 0.6, 0.0], [-0.1, 1.1, 0.0], [np.nan, 1.0, 0.0], [np.inf, 0.0, 0.0], [0.0, 0.0, 0.0]]
)
def test_rows_that_are_no_shares_are_refused(row: list[float]) -> None:
    """A row must be finite, not negative, and sum to 1."""
    with pytest.raises(PlanError, match="sum to 1"):
        slice_routes(np.array([row]), rotation(True, True), LAYOUT)


def test_tables_of_another_shape_are_refused() -> None:
    """A table or rotation that does not fit the layout is an error that states both shapes."""
    with pytest.raises(PlanError, match=r"expected a table of \(1, 3\)"):
        slice_routes(np.ones((1, 2)), rotation(True, True), LAYOUT)


def test_the_quarantined_replicas_share_goes_to_the_others() -> None:
    """A kernel with its only replica in quarantine gives its share to the rest of its row."""
    (route,) = slice_routes(np.array([[0.7, 0.2, 0.1]]), rotation(True, False), LAYOUT)
    assert [(one.upstream.replica, one.weight) for one in route.endpoints] == [("a-0", WEIGHT_SCALE)]
    assert route.shed_per_million == 100_000


def test_a_plan_becomes_a_table_with_its_version() -> None:
    """The first fleet of a plan is executed; shadow replicas are those of shadowed kernels."""
    plan = RoutingPlan(
        table=np.array([[[1.0, 0.0, 0.0]]]),
        in_rotation=np.array([[True, True]]),
        version=np.array([7]),
    )
    shadows = (ShadowRoute(slice="s", kernel="b", ratio=0.1),)
    table = gateway_table(plan, BOTH, RoutingFrame(layout=LAYOUT, default_slice="s", shadows=shadows))
    assert table.version == 7
    assert [one.upstream.replica for one in table.routes[0].endpoints] == ["a-0"]
    assert [one.replica for one in table.shadow_upstreams] == ["b-0"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"default_slice": "other"}, "has no route"),
        ({"shadows": (ShadowRoute(slice="other", kernel="b", ratio=0.1),)}, "has no route"),
        ({"shadows": (ShadowRoute(slice="s", kernel="b", ratio=0.1),) * 2}, "shadowed twice"),
        ({"routes": (SliceRoute(slice="s", endpoints=()),) * 2}, "routed twice"),
    ],
)
def test_tables_that_contradict_themselves_are_refused(change: dict[str, Any], said: str) -> None:
    """Slices are routed once, and every name of a slice is that of a routed one."""
    given_table = {"version": 1, "routes": (SliceRoute(slice="s", endpoints=()),), "default_slice": "s"}
    with pytest.raises(PlanError, match=said):
        GatewayTable(**{**given_table, **change})


def test_weights_and_shares_out_of_range_are_refused() -> None:
    """Weight 0 is an endpoint left out; shares lie in their ranges; a replica is listed once."""
    endpoint = WeightedUpstream(upstream=BOTH["a-0"], weight=1)
    for make in (
        lambda: WeightedUpstream(upstream=BOTH["a-0"], weight=0),
        lambda: SliceRoute(slice="s", endpoints=(), shed_per_million=PER_MILLION + 1),
        lambda: SliceRoute(slice="s", endpoints=(endpoint, endpoint)),
        lambda: ShadowRoute(slice="s", kernel="b", ratio=1.5),
    ):
        with pytest.raises(PlanError):
            make()


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1:1", "http://127.0.0.1", "http://127.0.0.1:1/v1", "http://host:1", "x"]
)
def test_addresses_that_the_gateway_cannot_reach_are_refused(url: str) -> None:
    """Only plain HTTP with a port and without a path is an upstream."""
    with pytest.raises(PlanError, match="expected http://ADDRESS:PORT"):
        upstream_of(LiveReplica(name="a-0", kernel="a", url=url, state=ReplicaState.READY))


def test_a_replica_that_comes_back_gets_its_share_of_its_kernel() -> None:
    """At a fifth beside a full peer it gets one request of six; at 0 it is not listed."""
    layout = FleetLayout(
        kernels=("k0", "k1"),
        slices=("s0",),
        replicas=("r0", "r1", "r2"),
        replica_kernel=np.array([0, 0, 1]),
        probe_metrics=(),
        known_good=1,
    )
    ups = {
        name: Upstream(replica=name, kernel=kernel, address="127.0.0.1", port=9000 + number)
        for number, (name, kernel) in enumerate((("r0", "k0"), ("r1", "k0"), ("r2", "k1")))
    }
    all_in = np.ones(3, dtype=np.bool_)

    def weights(**shares: float) -> dict[str, int]:
        rotation = GatewayRotation(in_rotation=all_in, upstreams=ups, shares=shares)
        (route,) = slice_routes(np.array([[1.0, 0.0, 0.0]]), rotation, layout)
        return {one.upstream.replica: one.weight for one in route.endpoints}

    assert weights() == {"r0": WEIGHT_SCALE // 2, "r1": WEIGHT_SCALE // 2}
    assert weights(r0=0.2) == {"r0": round(WEIGHT_SCALE / 6), "r1": round(WEIGHT_SCALE * 5 / 6)}
    assert weights(r0=0.0) == {"r1": WEIGHT_SCALE}
    assert weights(r0=0.0, r1=0.0) == {"r0": WEIGHT_SCALE // 2, "r1": WEIGHT_SCALE // 2}
