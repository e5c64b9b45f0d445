"""Actions: from numbers in [-1, 1] to a routing table, and back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled

#: One unit of action is worth this much in the exponent; e^6 is about 400.
ACTION_SCALE = 6.0
#: Smaller weights become 0: a softmax alone would leave a trace of traffic on every kernel.
LEAST_WEIGHT = 0.02


def table_from_action(
    action: NDArray[np.float64], home: NDArray[np.int64], kernels: int
) -> NDArray[np.float64]:
    """Routing table float64 [B, S, K + 1] of ``action`` float64 [B, S, kernels_max + 1] in [-1, 1].

    A softmax over ``ACTION_SCALE * (a + [kernel is home])`` of the pool's kernels and
    ``ACTION_SCALE * (2 a - 1)`` of the last column, shed. Weights below ``LEAST_WEIGHT`` become 0 and the
    rest is scaled to sum 1. So the action 0 is the home table, every table whose weights are 0 or above
    ``LEAST_WEIGHT`` can be asked for, and permuting kernels permutes the columns. Actions are clipped;
    those of padding do nothing; a NaN is read as 0.
    """
    table = np.zeros((action.shape[0], action.shape[1], kernels + 1))
    _softmax(np.ascontiguousarray(action), home, table)
    return table


@compiled
def _softmax(action, home, table):
    batch, slices, columns = table.shape
    for b in range(batch):
        for s in range(slices):
            highest = -np.inf
            for k in range(columns):
                a = action[b, s, k if k < columns - 1 else action.shape[2] - 1]
                a = 0.0 if np.isnan(a) else min(max(a, -1.0), 1.0)
                if k == columns - 1:
                    a = 2.0 * a - 1.0
                elif k == home[s]:
                    a += 1.0
                table[b, s, k] = ACTION_SCALE * a
                highest = max(highest, table[b, s, k])
            total = 0.0
            for k in range(columns):
                table[b, s, k] = np.exp(table[b, s, k] - highest)
                total += table[b, s, k]
            kept = 0.0
            for k in range(columns):
                if table[b, s, k] < LEAST_WEIGHT * total:
                    table[b, s, k] = 0.0
                kept += table[b, s, k]
            for k in range(columns):
                table[b, s, k] /= kept


def action_from_table(
    table: NDArray[np.float64], home: NDArray[np.int64], kernels_max: int
) -> NDArray[np.float32]:
    """Actions float32 [B, S, kernels_max + 1] that ask for ``table`` float64 [B, S, K + 1].

    Exact to rounding for tables whose weights are 0 or well above ``LEAST_WEIGHT``.
    """
    batch, slices, columns = table.shape
    wanted = np.full((batch, slices, kernels_max + 1), -1.0)
    used = table > 0.0
    # The heaviest column gets exponent ACTION_SCALE, the others what their ratio to it asks for.
    ratio = np.where(used, table, 1.0) / table.max(axis=2, keepdims=True)
    aim = 1.0 + np.log(ratio) / ACTION_SCALE
    lead = np.arange(columns - 1) == home[:, None]
    wanted[:, :, : columns - 1] = np.where(used[:, :, :-1], aim[:, :, :-1] - lead, -1.0)
    wanted[:, :, -1] = np.where(used[:, :, -1], (aim[:, :, -1] + 1.0) / 2.0, -1.0)
    return np.clip(wanted, -1.0, 1.0).astype(np.float32)
