"""The features that moved a score: occlusion and integrated gradients on named numbers.

``score`` is any function from inputs float [n, size] to float64 [n]; for a learned policy it is the margin of
its choice over another one. An attribution compares the input with a *reference*, for example the input of a
quiet tick: a feature that equals its reference has no effect.

Occlusion sets one feature to its reference: ``e_i = f(x) - f(x with x_i = r_i)``. Integrated gradients
(Sundararajan, Taly, Yan 2017) go from r to x: ``e_i = (x_i - r_i) mean_t df/dx_i(r + t (x - r))``, with the
derivative by central differences; they sum to ``f(x) - f(r)``. For a linear score both are weight times
difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Score = Callable[[Floats], Floats]

#: Steps from reference to input, and half the width of a difference as a share of the distance.
STEPS, HALF_WIDTH = 32, 1.0 / 256.0
#: Most rows in one call of a score.
_MOST_ROWS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One feature's effect on a score: its value, the reference's value, and the effect of the difference."""

    name: str
    value: float
    reference: float
    effect: float


def occlusion(score: Score, inputs: Floats, reference: Floats) -> Floats:
    """Effects float64 [size] of ``inputs`` float64 [size], each feature reset alone."""
    differs = np.flatnonzero(inputs != reference)
    rows = np.tile(inputs, (len(differs) + 1, 1))
    rows[np.arange(len(differs)), differs] = reference[differs]
    values = _ask(score, rows)
    effects = np.zeros(len(inputs))
    effects[differs] = values[-1] - values[:-1]
    return effects


def integrated_gradients(score: Score, inputs: Floats, reference: Floats, steps: int = STEPS) -> Floats:
    """Effects float64 [size] that sum to ``score(inputs) - score(reference)``, up to the step error."""
    way = inputs - reference
    differs = np.flatnonzero(way)
    effects = np.zeros(len(inputs))
    if not differs.size:
        return effects
    for t in (np.arange(steps) + 0.5) / steps:
        here = reference + t * way
        rows = np.tile(here, (2 * len(differs), 1))
        index, half = np.arange(len(differs)), HALF_WIDTH * way[differs]
        rows[index, differs] += half
        rows[len(differs) + index, differs] -= half
        values = _ask(score, rows)
        rise = values[: len(differs)] - values[len(differs) :]
        effects[differs] += rise / (2.0 * HALF_WIDTH * steps)
    return effects


def largest(
    names: Sequence[str], inputs: Floats, reference: Floats, effects: Floats, count: int
) -> tuple[Effect, ...]:
    """The ``count`` features with the largest absolute effects; features without effect are left out.

    Raises ValueError if names and numbers have different lengths.
    """
    if not len(names) == len(inputs) == len(reference) == len(effects):
        found = f"{len(names)}, {len(inputs)}, {len(reference)} and {len(effects)}"
        raise ValueError(f"names, inputs, reference, effects: expected equal lengths, got {found}")
    order = np.argsort(-np.abs(effects), kind="stable")[:count]
    return tuple(
        Effect(name=names[i], value=float(inputs[i]), reference=float(reference[i]), effect=float(effects[i]))
        for i in order
        if effects[i] != 0.0
    )


def _ask(score: Score, rows: Floats) -> Floats:
    parts = [score(rows[first : first + _MOST_ROWS]) for first in range(0, len(rows), _MOST_ROWS)]
    return np.concatenate([np.asarray(part, dtype=np.float64) for part in parts])
