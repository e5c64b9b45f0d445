"""Kernels that broke a promise when they were certified: no slice is moved there before they show better.

A profile says what a build gives when nothing is wrong with it. Where that lies beyond a limit that moves
traffic, the kernel begins condemned for the clause on the slice, as far beyond it as its certified values
are, and is let in like everybody else who is condemned: by what its probes show. Without it such a kernel
would look like the best of places until probes have proven what its certificate says.

The home of a slice is left alone: it was chosen in spite of that, and whoever loads the pool is told so.
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
    """What follows of the certified values."""

    condemned: NDArray[np.bool_]  # [K, S, C]
    answer_loss: NDArray[np.float64]  # [K, S], 0 where nothing is condemned


def broken_at_rest(setup: ControllerSetup) -> AtRest:
    """Of every kernel on every slice but those whose home it is; nothing where nobody was certified."""
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
