"""Evidence in one scrape's step-time ratio that a replica's own clock is too slow.

With ``x`` the ratio and ``m`` the clause's threshold, an observation is

    y = min(exp(TILT z - TILT^2 / 2), exp(MOST)),    z = log(x / m) / NOISE

*Named null*: given the past, the logarithm of the ratio is sub-Gaussian with a standard deviation of at most
``NOISE`` about a mean of at most ``log m``. Then ``E[y | past] <= 1``, and bets on a mean of 1 keep their
ARL0 at the guaranteed threshold. The error of the certified model is constant for a replica, so it belongs to
the mean, and ``m`` must be above it; ``NOISE`` is the variation between scrapes. Scrapes may depend on each
other in any way, as long as the null holds given the past.

Health is tested on the ratio itself, in thresholds, up to ``HEALTHY_RANGE`` of them.
"""

from __future__ import annotations

import math

from contracts.jit import compiled

#: Upper bound of the standard deviation of the log of one scrape's ratio. Capacity is learned from the same
#: ratio with ``CapacityOptions.scrape_noise``. Healthy simulated fleets show 0.02 to 0.07 up to near
#: saturation.
NOISE = 0.10
#: Bet on the score, in standard deviations.
TILT = 2.0
#: Upper bound of one scrape's evidence, in nats: one raises no alarm at an ARL0 above 1e5, two do up to 1e9.
MOST = 12.0
#: Upper bound of the ratio in the recovery test, in thresholds.
HEALTHY_RANGE = 4.0


@compiled
def step_time_observation(ratio, threshold):
    """The e-value ``y`` of one scrape, >= 0."""
    if not ratio > 0.0:
        return 0.0
    z = math.log(ratio / threshold) / NOISE
    return math.exp(min(TILT * z - 0.5 * TILT * TILT, MOST))
