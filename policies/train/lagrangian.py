"""A PID controller of the Lagrange multiplier of a constrained problem (Stooke, Achiam and Abbeel 2020).

Maximise return subject to ``cost <= limit``: the policy is trained on
``(r - multiplier c) / (1 + multiplier)``, and the multiplier follows
the error ``cost - limit`` of finished episodes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PidGains:
    """Gains of the error, its sum and its rise; ``most`` bounds the multiplier and the sum (no wind-up)."""

    proportional: float = 0.5
    integral: float = 0.05
    derivative: float = 0.1
    most: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiplier:
    """State between episodes: the multiplier >= 0, the error's sum >= 0, and the last cost (None: first)."""

    value: float = 0.0
    total: float = 0.0
    last_cost: float | None = None


def follow(before: Multiplier, cost: float, limit: float, gains: PidGains) -> Multiplier:
    """The multiplier after an episode (or a batch of them) of mean ``cost``.

    The derivative counts rises alone: a falling cost must not lower the multiplier twice.
    """
    error = cost - limit
    total = min(max(before.total + gains.integral * error, 0.0), gains.most)
    rise = 0.0 if before.last_cost is None else max(cost - before.last_cost, 0.0)
    value = gains.proportional * error + total + gains.derivative * rise
    return Multiplier(value=min(max(value, 0.0), gains.most), total=total, last_cost=cost)


def penalty(multiplier: float) -> tuple[float, float]:
    """Weights of reward and cost; they sum to 1, so that the scale of the return stays."""
    return 1.0 / (1.0 + multiplier), multiplier / (1.0 + multiplier)
