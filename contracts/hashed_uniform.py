"""A number in (0, 1) that depends on its arguments only: chance without a state, for compiled loops."""

from __future__ import annotations

import numpy as np

from contracts.jit import compiled


@compiled
def hashed_uniform(seed, stream, step):
    """A number in (0, 1) that depends on its three arguments only (splitmix64, Steele et al. 2014).

    The increment keeps arguments that are all 0 from staying 0, as splitmix64 does.
    """
    x = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ np.uint64(stream)) * np.uint64(0xD1342543DE82EF95)
    x = x ^ (np.uint64(step) * np.uint64(0x2545F4914F6CDD1D)) ^ (x >> np.uint64(32))
    x = x + np.uint64(0x9E3779B97F4A7C15)
    for factor in (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(30))) * factor
    x = x ^ (x >> np.uint64(31))
    return (float(x >> np.uint64(11)) + 0.5) / 9007199254740992.0
