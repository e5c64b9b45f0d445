"""Properties of the translation from a routing table to the rules of an HTTPRoute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from k8s.routes.rules import (
    MOST_BACKENDS,
    WHOLE,
    Backend,
    Mirror,
    RouteShape,
    integer_weights,
    route_rules,
    table_of,
)

shares = st.lists(st.floats(0.0, 1.0), min_size=2, max_size=MOST_BACKENDS).filter(lambda row: sum(row) > 1e-3)


def shape_of(slices: int, kernels: int) -> RouteShape:
    """A route with the given numbers of slices and kernels."""
    return RouteShape(
        slices=[f"s{at}" for at in range(slices)],
        default_slice="s0",
        slice_header="x-selvage-slice",
        kernels=[Backend(name=f"k{at}", port=8000) for at in range(kernels)],
        shed=Backend(name="selvage-shed", port=8080),
    )


@st.composite
def tables(draw: st.DrawFn) -> NDArray[np.float64]:
    """Normalised tables of any size."""
    slices, kernels = draw(st.integers(1, 16)), draw(st.integers(1, MOST_BACKENDS - 1))
    rows = st.lists(st.floats(0.0, 1.0), min_size=kernels + 1, max_size=kernels + 1)
    found = np.array([draw(rows.filter(lambda row: sum(row) > 1e-3)) for _ in range(slices)])
    return np.asarray(found / found.sum(axis=1, keepdims=True))


@given(shares)
def test_weights_add_up_and_stay_within_one(row: list[float]) -> None:
    """Integer weights sum to WHOLE, are not negative, differ by less than 1, and zeros stay zero."""
    given_row = np.array(row)
    weights = integer_weights(given_row)
    assert weights.sum() == WHOLE
    assert (weights >= 0).all()
    assert (np.abs(weights - given_row / given_row.sum() * WHOLE) < 1.0 + 1e-6).all()
    assert (weights[given_row == 0.0] == 0).all() or given_row.sum() == 0.0


@given(tables())
def test_every_slice_has_one_rule_and_every_rule_a_positive_backend(table: NDArray[np.float64]) -> None:
    """There is one rule per slice, with all kernels and the refusing backend, whose weights sum to WHOLE."""
    shape = shape_of(table.shape[0], table.shape[1] - 1)
    rules = route_rules(table, shape)
    assert len(rules) == len(shape.slices)
    for rule in rules:
        assert len(rule["backendRefs"]) == len(shape.kernels) + 1
        assert sum(backend["weight"] for backend in rule["backendRefs"]) == WHOLE


@given(tables())
def test_the_default_slice_is_matched_last_and_without_a_header(table: NDArray[np.float64]) -> None:
    """The rule of the default slice comes last and matches no header; the others match distinct values."""
    *named, default = route_rules(table, shape_of(table.shape[0], table.shape[1] - 1))
    assert "headers" not in default["matches"][0]
    values = [rule["matches"][0]["headers"][0]["value"] for rule in named]
    assert len(set(values)) == len(values)
    assert "s0" not in values


@pytest.mark.parametrize("table", [[[0.5, 0.4]], [[np.nan, 1.0]], [[-0.5, 1.5]], [[1.0, 0.0, 0.0]]], ids=str)
def test_a_wrong_table_is_never_written(table: list[list[float]]) -> None:
    """A table with a bad sum, NaN, a negative value or a wrong shape is refused."""
    with pytest.raises(ValueError, match="expected"):
        route_rules(np.array(table), shape_of(1, 1))


def test_too_many_kernels_or_slices_are_refused() -> None:
    """More kernels or slices than an HTTPRoute can hold are refused with the limit."""
    with pytest.raises(ValueError, match="at most 15 kernels, got 16"):
        shape_of(1, MOST_BACKENDS)
    with pytest.raises(ValueError, match="at most 16 slices, got 17"):
        shape_of(17, 1)


def pooled(kernels: int, name: str = "k{}") -> RouteShape:
    """A route whose kernels are behind InferencePools."""
    group = "inference.networking.k8s.io"
    behind = [
        Backend(group=group, kind="InferencePool", name=name.format(at), port=None) for at in range(kernels)
    ]
    return replace(shape_of(2, kernels), kernels=behind)


def test_a_table_of_inference_pools_is_read_back_by_kind() -> None:
    """A table is read back by group, kind and name; Services of the same names do not match."""
    table = np.array([[0.25, 0.75, 0.0], [0.0, 0.5, 0.5]])
    read = table_of(route_rules(table, pooled(2)), pooled(2))
    assert read is not None
    assert np.array_equal(read, table)
    assert table_of(route_rules(table, shape_of(2, 2)), pooled(2)) is None
    assert table_of(route_rules(table, pooled(2)), shape_of(2, 2)) is None


def test_a_mirror_to_a_pool_names_no_port() -> None:
    """A mirror to an InferencePool has group, kind and name, and no port."""
    (backend,) = pooled(1).kernels
    found = Mirror(backend=backend, ratio=0.5).as_json()["requestMirror"]["backendRef"]
    assert found == {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "k0"}


@pytest.mark.parametrize(("ratio", "numerator"), [(0.1, 1000), (0.0333, 333), (1.0, WHOLE), (1e-9, 1)])
def test_a_mirror_carries_its_share_in_every_rule(ratio: float, numerator: int) -> None:
    """Every rule mirrors the stated share; without a fraction a mirror would get all requests."""
    shape = replace(shape_of(2, 2), mirrors=[Mirror(backend=Backend(name="next", port=8000), ratio=ratio)])
    for rule in route_rules(np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]), shape):
        (found,) = rule["filters"]
        assert found["type"] == "RequestMirror"
        assert found["requestMirror"]["fraction"] == {"numerator": numerator, "denominator": WHOLE}
