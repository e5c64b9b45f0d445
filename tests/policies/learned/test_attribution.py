"""Feature attribution: linear scores, completeness, and no effect where nothing differs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from policies.learned.attribution import STEPS, integrated_gradients, largest, occlusion

Floats = NDArray[np.float64]
SIZE = 7
VECTORS = st.lists(st.floats(-4.0, 4.0), min_size=SIZE, max_size=SIZE).map(np.array)


def two_layers(seed: int) -> tuple[Floats, Floats, Floats]:
    """Weights of a small network with rectified units."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return rng.normal(size=(SIZE, 16)), rng.normal(size=16), rng.normal(size=16)


@given(weights=VECTORS, inputs=VECTORS, reference=VECTORS)
def test_linear_scores_are_explained_by_weight_times_difference(
    weights: Floats, inputs: Floats, reference: Floats
) -> None:
    """For ``f = w x`` occlusion and integrated gradients both give ``w_i (x_i - r_i)``."""
    expected = weights * (inputs - reference)

    def score(rows: Floats) -> Floats:
        return np.asarray(rows @ weights)

    np.testing.assert_allclose(occlusion(score, inputs, reference), expected, atol=1e-9)
    np.testing.assert_allclose(integrated_gradients(score, inputs, reference), expected, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_integrated_gradients_are_complete(seed: int) -> None:
    """Their sum is the difference of the scores; more steps bring it closer."""
    first, bias, last = two_layers(seed)
    rng = np.random.Generator(np.random.PCG64(100 + seed))
    inputs, reference = rng.normal(size=SIZE), rng.normal(size=SIZE)

    def score(rows: Floats) -> Floats:
        return np.asarray(np.maximum(rows @ first + bias, 0.0) @ last)

    wanted = float(score(inputs[None])[0] - score(reference[None])[0])
    errors = [
        abs(float(integrated_gradients(score, inputs, reference, steps).sum()) - wanted)
        for steps in (STEPS, 16 * STEPS)
    ]
    assert errors[1] <= errors[0] + 1e-9
    assert errors[1] <= 0.01 * max(abs(wanted), 1.0)


@given(inputs=VECTORS, reference=VECTORS, same=st.sets(st.integers(0, SIZE - 1)))
def test_features_equal_to_the_reference_explain_nothing(
    inputs: Floats, reference: Floats, same: set[int]
) -> None:
    """Features equal to the reference have no effect, whatever the score does with them."""
    inputs = inputs.copy()
    inputs[list(same)] = reference[list(same)]

    def score(rows: Floats) -> Floats:
        return np.asarray(np.exp(np.clip(rows, -4, 4)).prod(axis=1))

    for method in (occlusion, integrated_gradients):
        assert not method(score, inputs, reference)[list(same)].any()


def test_the_largest_effects_come_first_with_their_names() -> None:
    """Ordered by absolute size, as many as asked for, and none without an effect."""
    effects = np.array([0.0, -3.0, 1.0, 2.0])
    found = largest("abcd", np.arange(4, dtype=np.float64), np.zeros(4), effects, 3)
    assert [(one.name, one.effect) for one in found] == [("b", -3.0), ("d", 2.0), ("c", 1.0)]
    assert len(largest("abcd", np.arange(4, dtype=np.float64), np.zeros(4), effects, 9)) == 3
    with pytest.raises(ValueError, match="equal lengths"):
        largest("abc", np.arange(4, dtype=np.float64), np.zeros(4), effects, 3)
