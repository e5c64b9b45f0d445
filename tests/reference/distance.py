"""Distance form: how far the answer of a probe lies from a reference, in absolute units.

Ranks call every value that was never seen extreme, whether it differs by a rounding or by half of the
probability. Here a probe's answer is a vector, its log-probabilities say, and the observation is its mean
absolute distance from the reference's middle (median by component). The null says how far is still the same
kernel: *the mean distance is at most* ``limit``, the larger of an absolute floor and a margin over the
largest mean of any block of the reference. Hosts behind one name, a date in a template and a drift with the
load may then come, stay and change as they like: while their mean distance keeps the limit, bets on the mean
(``eprocess.Betting``) keep their ARL0 at the guaranteed threshold, whatever the law and its memory.

A broken answer may hold anything: distances are cut at ``CLIP`` limits, and a vector with a component that is
not finite or above 0 is no observation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.detect.streams.eprocess import Betting
from controller.detect.streams.protocol import Floats

#: Mean absolute difference of log-probabilities, in nats, that is the same kernel on any host.
FLOOR_NATS = 0.05
#: Over the largest mean of a block of the reference.
MARGIN = 1.5
#: Distances count up to so many limits.
CLIP = 50.0
#: Blocks that the reference is split into.
BLOCKS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Distance:
    """Null: ``E[distance from the middle | past] <= limit``."""

    #: float64 [d].
    middle: Floats
    #: In the unit of the vectors.
    limit: float

    @property
    def detector(self) -> Betting:
        """Bets on the mean distance, in the unit of the vectors."""
        return Betting(null_mean=self.limit, clip=CLIP * self.limit)

    def observe(self, answers: Floats) -> Floats:
        """Distance of each of ``answers`` float64 [..., d], [...]; NaN where an answer is no observation."""
        distance = np.abs(answers - self.middle).mean(axis=-1)
        return np.where(_readable(answers), np.minimum(distance, CLIP * self.limit), np.nan)


def distance_form(reference: Floats, *, floor: float = FLOOR_NATS, margin: float = MARGIN) -> Distance:
    """Distance form on ``reference`` float64 [n, d] in its order of time, log-probabilities <= 0.

    floor: distance that is never held against a kernel, in the unit of the vectors. Raises ValueError below
    20 readable answers, for a floor that is not above 0, and for a margin below 1.
    """
    if not (floor > 0.0 and margin >= 1.0):
        raise ValueError(f"expected a floor above 0 and a margin of at least 1, got {floor} and {margin}")
    readable = reference[_readable(reference)]
    if len(readable) < 20:
        raise ValueError(f"expected at least 20 readable reference answers, got {len(readable)}")
    middle = np.median(readable, axis=0)
    distance = np.abs(readable - middle).mean(axis=-1)
    widest = max(float(block.mean()) for block in np.array_split(distance, BLOCKS))
    return Distance(middle=middle, limit=max(floor, margin * widest))


def _readable(answers: Floats) -> NDArray[np.bool_]:
    return np.asarray((np.isfinite(answers) & (answers <= 0.0)).all(axis=-1))
