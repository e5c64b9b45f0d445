"""The check of tables that policies hand over."""

from __future__ import annotations

import numpy as np

from controller.shield.rows import normalise


def test_unusable_rows_are_replaced_by_the_last_table() -> None:
    """NaN, negative or missing weight is no proposal; a wrong sum is scaled."""
    last = np.tile([1.0, 0.0, 0.0], (1, 4, 1))
    table = np.array([[[np.nan, 1.0, 0.0], [-1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 2.0]]])
    np.testing.assert_array_equal(
        normalise(table, last), [[[1, 0, 0], [1, 0, 0], [1, 0, 0], [0.25, 0.25, 0.5]]]
    )
