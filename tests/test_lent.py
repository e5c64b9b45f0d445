"""Arrays lent to compiled loops, and the look at all cells of a unit at once."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from contracts.lent import lent
from controller.flags_compiled import by_cell, some_of


@njit
def _double(first, others):  # type: ignore[no-untyped-def]
    """Double a whole array and every row of two others, through views of what was lent."""
    first = lent(first)
    left, right = lent(others)
    for b in range(first.shape[0]):
        first[b] *= 2.0
        for array in (left, right):
            row = array[b]
            for k in range(row.shape[0]):
                row[k] *= 2.0
    return first.sum()


@njit
def _some(flags):  # type: ignore[no-untyped-def]
    cells, found = by_cell(flags), np.empty(flags.shape[:2], np.bool_)
    for b in range(flags.shape[0]):
        for u in range(flags.shape[1]):
            found[b, u] = some_of(cells, b, u)
    return found


def test_a_lent_array_is_the_array_itself() -> None:
    """What is written into a lent array stands in the caller's, whose references stay as they were."""
    _double(np.zeros((1, 1)), (np.zeros((1, 1)), np.zeros((1, 1))))  # compiling keeps a reference for a while
    arrays = [np.arange(6.0).reshape(2, 3) + shift for shift in range(3)]
    expected = [2.0 * array for array in arrays]
    before = [sys.getrefcount(array) for array in arrays]
    total = _double(arrays[0], (arrays[1], arrays[2]))
    assert [sys.getrefcount(array) for array in arrays] == before
    assert total == expected[0].sum()
    for array, doubled in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(array, doubled)


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), share=st.sampled_from([0.0, 0.01, 0.3]))
def test_some_of_a_unit_is_any_of_its_cells(seed: int, share: float) -> None:
    """The look at all cells of a unit says what numpy's ``any`` over slices and clauses says."""
    flags = np.random.default_rng(seed).random((3, 4, 5, 15)) < share
    np.testing.assert_array_equal(_some(flags), flags.any(axis=(2, 3)))


@pytest.mark.parametrize("shape", [(0, 0, 0, 0), (2, 3, 1, 0)])
def test_a_unit_without_cells_has_none(shape: tuple[int, ...]) -> None:
    """Nothing is found where there is nothing to look at."""
    assert not _some(np.zeros(shape, dtype=np.bool_)).any()
