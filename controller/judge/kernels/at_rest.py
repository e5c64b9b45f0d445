"""Kernels whose certified values already break a clause: they start condemned and must be re-certified.

A profile states what a build delivers while it is healthy. Where a certified value lies beyond a limit that
moves traffic, the kernel starts condemned for that clause on that slice. Its excess is the excess of the
certified values. It is re-certified like any other condemned kernel: by its probes. Without this rule such a
kernel would look like the best failover target until probes have proven what its certificate already says.

The home kernel of a slice is exempt: it was chosen in spite of its profile, and loading the pool warns the
operator about it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.cells import some_within
from controller.detect.as_certified import certified_sums
from controller.detect.clauses import moves_traffic
from controller.detect.sums import COUNT, excess_of_sums
from controller.judge.kernels.loss import lost_of
from controller.options import ControllerSetup
from controller.shield.lesser_evil import WHOLE


class AtRest(NamedTuple):
    """State of every kernel before the first observation, derived from its certified values."""

    condemned: NDArray[np.bool_]  # [K, S, C]
    answer_loss: NDArray[np.float64]  # [K, S], 0 where nothing is condemned


def broken_at_rest(setup: ControllerSetup) -> AtRest:
    """Clauses that certified values break, per kernel and slice; home slices are exempt.

    Without certified values nothing is condemned.
    """
    contract, (kernels, slices, _) = setup.contract, setup.layout.shape
    condemned = np.zeros((kernels, slices, len(contract.clause_ids)), dtype=np.bool_)
    loss = np.zeros((kernels, slices))
    if setup.fleet.certified is None:
        return AtRest(condemned, loss)
    sums = certified_sums(setup.fleet.certified, contract)
    excess = np.where(sums[..., COUNT] > 0.0, excess_of_sums(sums, contract), 0.0)
    condemned |= (excess > 0.0) & moves_traffic(contract)
    condemned[setup.fleet.home, np.arange(slices)] = False
    at = np.nonzero(some_within(condemned))
    loss[at] = lost_of(np.where(condemned[at], excess[at], 0.0), contract)
    hard = (condemned & contract.hard).any(axis=2)
    return AtRest(condemned, np.where(hard, np.maximum(loss, WHOLE), loss))
