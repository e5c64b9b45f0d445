"""Borrowed arrays in compiled loops, and the check of all cells of a replica at once."""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from controller.cells import by_cell, some_of


class _Sums(NamedTuple):
    """A record within a record."""

    left: NDArray[np.float64]
    right: NDArray[np.float64]


class _Record(NamedTuple):
    """Fields of different types, as in the records of the compiled passes."""

    values: NDArray[np.float64]
    factor: float
    chosen: NDArray[np.bool_]
    sums: _Sums


@compiled
def _accumulate(record):
    """Scale the chosen rows and add them up through a borrowed record; returns the number of rows."""
    record = borrowed(record)
    count = 0
    for b in range(record.values.shape[0]):
        row = record.values[b]
        row[:] *= record.factor
        if record.chosen[b]:
            count += 1
            _add(record.sums, b, row)
    return count


@compiled
def _add(sums, b, row):
    sums.left[b] += row[0]
    sums.right[b] += row[1]


@compiled
def _double(first, others):
    """Double a whole array and every row of two others, through borrowed views."""
    first = borrowed(first)
    left, right = borrowed(others)
    for b in range(first.shape[0]):
        first[b] *= 2.0
        for array in (left, right):
            row = array[b]
            for k in range(row.shape[0]):
                row[k] *= 2.0
    return first.sum()


@compiled
def _some(flags):
    cells, found = by_cell(flags), np.empty(flags.shape[:2], np.bool_)
    for b in range(flags.shape[0]):
        for u in range(flags.shape[1]):
            found[b, u] = some_of(cells, b, u)
    return found


def test_a_borrowed_array_is_the_array_itself() -> None:
    """Writes to a borrowed array change the caller's, whose reference count stays the same."""
    _double(np.zeros((1, 1)), (np.zeros((1, 1)), np.zeros((1, 1))))  # compiling keeps a reference for a while
    arrays = [np.arange(6.0).reshape(2, 3) + shift for shift in range(3)]
    expected = [2.0 * array for array in arrays]
    before = [sys.getrefcount(array) for array in arrays]
    total = _double(arrays[0], (arrays[1], arrays[2]))
    assert [sys.getrefcount(array) for array in arrays] == before
    assert total == expected[0].sum()
    for array, doubled in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(array, doubled)


def test_a_borrowed_record_keeps_its_fields() -> None:
    """Fields of a borrowed named tuple, and of one within it, are read and written by name."""
    rows, chosen = np.arange(6, dtype=np.float64).reshape(3, 2), np.array([True, False, True])
    sums = _Sums(left=np.zeros(3), right=np.zeros(3))
    record = _Record(values=rows.copy(), factor=2.0, chosen=chosen, sums=sums)
    _accumulate(record._replace(values=rows.copy(), sums=_Sums(np.zeros(3), np.zeros(3))))  # compiles
    before = [sys.getrefcount(array) for array in (record.values, chosen, *sums)]
    assert _accumulate(record) == 2
    assert [sys.getrefcount(array) for array in (record.values, chosen, *sums)] == before
    np.testing.assert_array_equal(record.values, 2.0 * rows)
    np.testing.assert_array_equal(np.stack(sums, axis=1), np.where(chosen[:, None], 2.0 * rows, 0.0))


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), share=st.sampled_from([0.0, 0.01, 0.3]))
def test_some_of_equals_any_over_cells(seed: int, share: float) -> None:
    """The check of all cells of a replica equals numpy's ``any`` over slices and clauses."""
    flags = np.random.default_rng(seed).random((3, 4, 5, 15)) < share
    np.testing.assert_array_equal(_some(flags), flags.any(axis=(2, 3)))


@pytest.mark.parametrize("shape", [(0, 0, 0, 0), (2, 3, 1, 0)])
def test_a_replica_without_cells_has_none(shape: tuple[int, ...]) -> None:
    """An empty replica has no flag set."""
    assert not _some(np.zeros(shape, dtype=np.bool_)).any()
