"""Quantiles of the beta, binomial and Student distributions, for exact limits without SciPy.

A gate in a pipeline starts for one verdict, and SciPy alone would take a quarter of that start. All three
come from the regularised incomplete beta function I_x(a, b) (DLMF 8.17): its continued fraction by Lentz's
method, and its inverse by Newton's steps within a bracket that shrinks. The tests hold them against SciPy.
"""

from __future__ import annotations

import math
from bisect import bisect_left

_TINY = 1e-300
_CLOSE = 1e-15
#: Two steps of an inverse that differ relatively by less than this are the same.
_SAME = 1e-13
#: The fraction needs about the root of the larger parameter; no caller has that many observations.
_MOST_TERMS = 100_000
_MOST_STEPS = 200


def incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b) for a, b > 0 and x in [0, 1]: the share of a beta distribution at or below x."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = math.exp(_log_front(a, b, x))
    if x <= (a + 1.0) / (a + b + 2.0):
        return front / (a * _fraction(a, b, x))
    return 1.0 - front / (b * _fraction(b, a, 1.0 - x))


def beta_quantile(a: float, b: float, share: float) -> float:
    """The x with I_x(a, b) = ``share``, in [0, 1]."""
    low, high, x = 0.0, 1.0, a / (a + b)
    for _ in range(_MOST_STEPS):
        excess = incomplete_beta(a, b, x) - share
        low, high = (low, x) if excess > 0.0 else (x, high)
        slope = math.exp(_log_front(a, b, x)) / max(x * (1.0 - x), _TINY)
        step = x - excess / max(slope, _TINY)
        found = step if low < step < high else 0.5 * (low + high)
        if abs(found - x) <= _SAME * found:
            return found
        x = found
    return x


def binomial_share(count: int, n: int, rate: float) -> float:
    """Probability of at most ``count`` < n events in n trials of probability ``rate``."""
    return incomplete_beta(n - count, count + 1.0, 1.0 - rate)


def binomial_place(n: int, rate: float, share: float) -> int:
    """Fewest events, up to n, that are not exceeded with probability ``share`` in n trials of ``rate``."""
    return bisect_left(range(n), share, key=lambda count: binomial_share(count, n, rate))


def student_quantile(freedom: float, share: float) -> float:
    """Quantile of Student's t with ``freedom`` degrees of freedom, for ``share`` in (0, 1)."""
    y = beta_quantile(0.5, 0.5 * freedom, abs(2.0 * share - 1.0)) if share != 0.5 else 0.0
    return math.copysign(math.sqrt(freedom * y / (1.0 - y)), share - 0.5)


def _log_front(a: float, b: float, x: float) -> float:
    """log of x^a (1 - x)^b / B(a, b)."""
    norm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return norm + a * math.log(x) + b * math.log1p(-x)


def _fraction(a: float, b: float, x: float) -> float:
    """1 + d1 / (1 + d2 / (1 + ...)) of DLMF 8.17.22."""
    found, below, above = 1.0, 0.0, 1.0
    for term in range(1, _MOST_TERMS):
        half = term // 2
        if term % 2:
            d = -(a + half) * (a + b + half) * x / ((a + term - 1.0) * (a + term))
        else:
            d = half * (b - half) * x / ((a + term - 1.0) * (a + term))
        below = 1.0 / _away(1.0 + d * below)
        above = _away(1.0 + d / above)
        found *= below * above
        if abs(below * above - 1.0) < _CLOSE:
            break
    return found


def _away(value: float) -> float:
    """``value``, or the smallest number that can be divided by."""
    return value if abs(value) > _TINY else _TINY
