"""Whether flags are set in blocks of many cells."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.rng import stream
from controller.cells import some_within


@pytest.mark.parametrize("axes", [1, 2])
def test_some_within_is_any_over_the_last_axes(axes: int) -> None:
    """At any density, length of the axes, and memory layout."""
    rng = stream(3, "cells")
    for density in (0.0, 0.02, 0.5, 1.0):
        flags = rng.random((4, 3, 5, 7)) < density
        for seen in (flags, flags[:, ::-1], flags[..., [1, 4]], flags[..., :0], flags[:0]):
            expected = seen.any(axis=tuple(range(4 - axes, 4)))
            assert np.array_equal(some_within(seen, axes), expected)
