"""The bound chain: from a logit distance to what it can do to distributions, rewards and gradients.

``d`` is half the range of the logit difference (the common shift removed), ``T`` the temperature. Each
bound comes with the ``sharp`` constant (attained or first-order tight) and, where the literature gives
a looser one, the ``paper`` constant. A bound is not a measurement: tables print both side by side.

=========================  ==========================  ========================
quantity                   sharp                       paper, or looser
=========================  ==========================  ========================
TV of a position           tanh(d / 2T)  <=  d / 2T    (e^(2d/T) - 1) / 2
KL of a position, nats     d^2 / 2T^2
TV of an L-token answer    1 - prod(1 - TV_t)
reward drift of a step     (r_max - r_min) TV          2 R_max TV
E TV under a clause        tanh(tau / 2T) + rho        (e^(2tau/T) - 1)/2 + rho
E|w - 1| over pi_inf       2 TV                        2 E|log w|
policy-gradient bias       A_max G_max E|w - 1|
=========================  ==========================  ========================

All functions are elementwise over arrays, float64.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Constant = Literal["sharp", "paper"]


def tv_bound(distance: ArrayLike, temperature: float = 1.0, constant: Constant = "sharp") -> Floats:
    """Largest total variation of a position whose logit half-range is ``distance``, 0..1 when sharp.

    Sharp: ``tanh(d / 2T)``, attained by two tokens with swapped probabilities. Paper:
    ``(e^(2d/T) - 1) / 2``, which may exceed 1.
    """
    scaled = _scaled(distance, temperature)
    if constant == "sharp":
        return np.asarray(np.tanh(0.5 * scaled))
    with np.errstate(over="ignore"):
        return np.asarray(0.5 * np.expm1(2.0 * scaled))


def tv_bound_linear(distance: ArrayLike, temperature: float = 1.0) -> Floats:
    """First-order form of the sharp bound, ``d / 2T``."""
    return 0.5 * _scaled(distance, temperature)


def kl_bound(distance: ArrayLike, temperature: float = 1.0) -> Floats:
    """Largest KL divergence of a position, nats: ``d^2 / 2T^2`` (Hoeffding's lemma)."""
    return 0.5 * _scaled(distance, temperature) ** 2


def reward_drift_bound(
    tv: ArrayLike, reward_min: float, reward_max: float, constant: Constant = "sharp"
) -> Floats:
    """Largest change of an expected reward: sharp ``(r_max - r_min) TV``, paper ``2 R_max TV``."""
    if reward_max < reward_min:
        raise ValueError(f"reward_max {reward_max} is below reward_min {reward_min}")
    span = reward_max - reward_min if constant == "sharp" else 2.0 * max(abs(reward_min), abs(reward_max))
    return span * np.asarray(tv, dtype=np.float64)


def expected_tv_bound(
    threshold: ArrayLike, budget: float, temperature: float = 1.0, constant: Constant = "sharp"
) -> Floats:
    """E TV when a share ``budget`` of positions may exceed the distance ``threshold``; at most 1."""
    if not 0.0 <= budget <= 1.0:
        raise ValueError(f"budget must lie in 0..1, got {budget}")
    return np.asarray(np.minimum(tv_bound(threshold, temperature, constant) + budget, 1.0))


def answer_tv_bound(step_tv: ArrayLike) -> float:
    """TV of whole answers from the largest TV of each of their L tokens: ``1 - prod(1 - TV_t)``."""
    steps = np.clip(np.asarray(step_tv, dtype=np.float64), 0.0, 1.0)
    if (steps == 1.0).any():
        return 1.0
    return float(-np.expm1(np.log1p(-steps).sum()))


def ratio_deviation_from_log(abs_log_w: ArrayLike) -> Floats:
    """Bound on E|w - 1| from E|log w|: ``2 E|log w|``."""
    return 2.0 * np.asarray(abs_log_w, dtype=np.float64)


def ratio_deviation_from_kl(w_log_w: ArrayLike) -> Floats:
    """Bound on E|w - 1| from E[w log w]: ``sqrt(2 E[w log w])`` (Pinsker)."""
    return np.asarray(np.sqrt(2.0 * np.maximum(np.asarray(w_log_w, dtype=np.float64), 0.0)))


def gradient_bias_bound(abs_w_minus_1: ArrayLike, advantage_max: float, score_norm_max: float) -> Floats:
    """Policy-gradient bias ``A_max G_max E|w - 1|``; under A1 to A3 of ``contracts.assess.assumptions``."""
    return advantage_max * score_norm_max * np.asarray(abs_w_minus_1, dtype=np.float64)


def truncated_bias_bound(excess: ArrayLike, advantage_max: float, score_norm_max: float) -> Floats:
    """Residual bias of the correction ``min(w, c)``: ``A_max G_max E(w - c)+``."""
    return advantage_max * score_norm_max * np.asarray(excess, dtype=np.float64)


def _scaled(distance: ArrayLike, temperature: float) -> Floats:
    values = np.asarray(distance, dtype=np.float64)
    if not 0.0 < temperature < np.inf:
        raise ValueError(f"temperature must be a number > 0, got {temperature}")
    if np.isnan(values).any() or (values < 0.0).any():
        raise ValueError("a logit distance is a number >= 0")
    return np.asarray(values / temperature)
