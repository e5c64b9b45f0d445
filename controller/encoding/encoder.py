"""The encoding of observations for learned policies: ``FEATURES`` as numbers in one fixed order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled
from controller.encoding.actions import action_from_table, table_from_action
from controller.encoding.features import Feature, Scope, of_scope
from controller.encoding.scales import Values
from controller.ports import Observation

_KERNEL, _CELL, _SLICE, _FLEET = (of_scope(scope) for scope in Scope)
#: Bounds of the features of each scope, as arrays.
_ENDS = {
    scope: (np.array([f.low for f in of_scope(scope)]), np.array([f.high for f in of_scope(scope)]))
    for scope in Scope
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """The encoding of pools of up to ``kernels_max`` kernels under contracts of ``slices`` slices."""

    kernels_max: int
    slices: int

    @property
    def row_size(self) -> int:
        """Numbers per kernel, F."""
        return len(_KERNEL) + self.slices * len(_CELL)

    @property
    def tail_size(self) -> int:
        """Numbers behind the rows, G."""
        return self.slices * len(_SLICE) + len(_FLEET)

    @property
    def size(self) -> int:
        """Length of an encoded observation, ``kernels_max * F + G``."""
        return self.kernels_max * self.row_size + self.tail_size

    @property
    def action_size(self) -> int:
        """Length of an action: a number per (slice, kernel or shed)."""
        return self.slices * (self.kernels_max + 1)

    def names(self) -> tuple[str, ...]:
        """One name per number of an encoded observation."""
        row = [feature.name for feature in _KERNEL]
        row += [f"slice{s}.{feature.name}" for s in range(self.slices) for feature in _CELL]
        rows = [f"kernel{k}.{name}" for k in range(self.kernels_max) for name in row]
        tail = [f"slice{s}.{feature.name}" for s in range(self.slices) for feature in _SLICE]
        return (*rows, *tail, *(f"fleet.{feature.name}" for feature in _FLEET))

    def bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """``(low, high)``, float32 [size]."""
        return self._spread("low"), self._spread("high")

    def _spread(self, side: str) -> NDArray[np.float32]:
        def of(features: tuple[Feature, ...]) -> list[float]:
            return [getattr(feature, side) for feature in features]

        row = of(_KERNEL) + self.slices * of(_CELL)
        return np.array(self.kernels_max * row + self.slices * of(_SLICE) + of(_FLEET), dtype=np.float32)

    def encode(self, observation: Observation) -> NDArray[np.float32]:
        """Float32 [B, size], within ``bounds``."""
        self._check(observation.ready.shape[1], observation.table.shape[1])
        batch, own = observation.ready.shape[0], len(_KERNEL)
        encoded = np.zeros((batch, self.size), dtype=np.float32)
        row, end = self.row_size, self.kernels_max * self.row_size
        kernels, slices = observation.ready.shape[1], self.slices
        _write(encoded, _KERNEL, observation, (kernels,), (0, row, 0))
        _write(encoded, _CELL, observation, (kernels, slices), (own, row, len(_CELL)))
        _write(encoded, _SLICE, observation, (slices,), (end, len(_SLICE), 0))
        _write(encoded, _FLEET, observation, (), (end + slices * len(_SLICE), 0, 0))
        return encoded

    def split(self, encoded: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """``(rows [..., kernels_max, F], tail [..., G])`` of an encoded observation; views."""
        edge = self.kernels_max * self.row_size
        shape = (*encoded.shape[:-1], self.kernels_max, self.row_size)
        return encoded[..., :edge].reshape(shape), encoded[..., edge:]

    def table(self, action: NDArray[np.floating], home: NDArray[np.int64], kernels: int) -> Values:
        """Routing table float64 [B, S, K + 1] of actions [B, action_size] for a pool of ``kernels``."""
        self._check(kernels, len(home))
        logits = np.asarray(action, dtype=np.float64).reshape(-1, self.slices, self.kernels_max + 1)
        return table_from_action(logits, home, kernels)

    def action(self, table: Values, home: NDArray[np.int64]) -> NDArray[np.float32]:
        """Actions [B, action_size] that ask for ``table``: the way back."""
        self._check(table.shape[2] - 1, table.shape[1])
        return action_from_table(table, home, self.kernels_max).reshape(len(table), -1)

    def _check(self, kernels: int, slices: int) -> None:
        if kernels > self.kernels_max or slices != self.slices:
            raise ValueError(
                f"encoder: expected at most {self.kernels_max} kernels and {self.slices} slices, "
                f"got {kernels} and {slices}"
            )


def _write(
    encoded: NDArray[np.float32],
    features: tuple[Feature, ...],
    observation: Observation,
    shape: tuple[int, ...],
    place: tuple[int, int, int],
) -> None:
    """Put the features' values [B, *shape], clipped, at ``place``: f + [0] + i [1] + j [2]."""
    batch, (rows, columns) = encoded.shape[0], (*shape, 1, 1)[:2]
    values = np.empty((len(features), batch, *shape))
    for index, feature in enumerate(features):
        values[index] = feature.read(observation)
    grid = values.reshape(len(features), batch, rows, columns)
    _place(encoded, grid, *place, *_ENDS[features[0].scope])


@compiled
def _place(encoded, values, first, outer, inner, low, high):
    features, batch, rows, columns = values.shape
    for b in range(batch):
        for i in range(rows):
            for j in range(columns):
                for f in range(features):
                    value = values[f, b, i, j]
                    # A NaN (nothing known yet) is shown as the lower bound, so none reaches a policy.
                    value = low[f] if np.isnan(value) else min(max(value, low[f]), high[f])
                    encoded[b, first + f + i * outer + j * inner] = value
