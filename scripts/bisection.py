"""The highest rate of requests at which a condition still holds, by bisection."""

from __future__ import annotations

import math
from collections.abc import Callable

#: Bisection ends when the ratio of the lowest bad to the highest good rate is below this.
TOLERANCE = 0.002
#: Limits of the search, requests per second.
LEAST_RPS, MOST_RPS = 0.05, 1e4


def bisect_highest(good: Callable[[float], bool], guess: float, tolerance: float = TOLERANCE) -> float:
    """Highest rate that is ``good``, to ``tolerance``, by doubling or halving ``guess`` and bisection."""
    low = high = float(guess)
    while low > LEAST_RPS and not good(low):
        low, high = low / 2.0, low
    if low <= LEAST_RPS:
        return 0.0
    while high < MOST_RPS and (high == low or good(high)):
        low, high = high, 2.0 * high
    while high / low > 1.0 + tolerance:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if good(middle) else (low, middle)
    return low
