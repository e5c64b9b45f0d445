"""The bound chain: from a logit distance to what it can do to distributions, rewards and gradients.

``d`` is half the range of the logit difference (the common shift removed), ``T`` the temperature. Each
bound comes with the ``sharp`` constant (attained or first-order tight) and, where the literature gives
a looser one, the ``paper`` constant. A bound is not a measurement: tables print both side by side.

=========================  ==========================  ========================
quantity                   sharp                       paper, or looser
=========================  ==========================  ========================
TV of a position           tanh(d / 2T)  <=  d / 2T    (e^(2d/T) - 1) / 2
KL of a position, nats     d^2 / 2T^2
reward drift of a step     (r_max - r_min) TV          2 R_max TV
E TV under a clause        tanh(tau / 2T) + rho        (e^(2tau/T) - 1)/2 + rho
E|w - 1| over pi_inf       2 TV                        2 E|log w|
policy-gradient bias       A_max G_max E|w - 1|
=========================  ==========================  ========================

All functions are elementwise over arrays, float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contracts.metrics.numeric import log_normalise, log_ratio

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


def distance_for_tv(tv: ArrayLike, temperature: float = 1.0) -> Floats:
    """Logit half-range that keeps TV at or below ``tv`` in [0, 1): ``2T atanh(tv)``."""
    return np.asarray(2.0 * temperature * np.arctanh(np.asarray(tv, dtype=np.float64)))


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


def sequence_tv_bound(step_tv: ArrayLike) -> float:
    """TV of whole answers from the largest TV of each of their L tokens: ``1 - prod(1 - TV_t)``."""
    steps = np.clip(np.asarray(step_tv, dtype=np.float64), 0.0, 1.0)
    if (steps == 1.0).any():
        return 1.0
    return float(-np.expm1(np.log1p(-steps).sum()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportanceMoments:
    """Moments of w = pi_train / pi_inf under pi_inf, per position, float64 [T].

    abs_w_minus_1: E|w - 1| (= 2 TV). w_log_w: E[w log w] (= KL(train || inf)). abs_log_w: E|log w|.
    lost_mass: train mass where pi_inf is 0; the identities hold only where it is 0 (support overlap).
    """

    abs_w_minus_1: Floats
    w_log_w: Floats
    abs_log_w: Floats
    lost_mass: Floats


def importance_moments(reference_logp: ArrayLike, candidate_logp: ArrayLike) -> ImportanceMoments:
    """Exact moments from log-probabilities ``[T, V]`` of reference and candidate."""
    reference = log_normalise(np.asarray(reference_logp, dtype=np.float64))
    candidate = log_normalise(np.asarray(candidate_logp, dtype=np.float64))
    log_w, served = log_ratio(reference, candidate), np.exp(candidate)
    support = served > 0.0
    inside = np.where(support, log_w, 0.0)
    w = np.where(support, np.exp(inside), 0.0)
    w_log_w = np.where(w > 0.0, w * np.where(w > 0.0, inside, 0.0), 0.0)
    magnitude = np.where(support, np.abs(inside), 0.0)
    return ImportanceMoments(
        abs_w_minus_1=np.sum(served * np.abs(np.where(support, np.expm1(inside), 0.0)), axis=1),
        w_log_w=np.sum(served * w_log_w, axis=1),
        abs_log_w=np.sum(served * magnitude, axis=1),
        lost_mass=np.sum(np.where(support, 0.0, np.exp(reference)), axis=1),
    )


def ratio_deviation_from_log(abs_log_w: ArrayLike) -> Floats:
    """Bound on E|w - 1| from E|log w|: ``2 E|log w|``."""
    return 2.0 * np.asarray(abs_log_w, dtype=np.float64)


def ratio_deviation_from_kl(w_log_w: ArrayLike) -> Floats:
    """Bound on E|w - 1| from E[w log w]: ``sqrt(2 E[w log w])`` (Pinsker)."""
    return np.asarray(np.sqrt(2.0 * np.maximum(np.asarray(w_log_w, dtype=np.float64), 0.0)))


def gradient_bias_bound(abs_w_minus_1: ArrayLike, advantage_max: float, score_norm_max: float) -> Floats:
    """Policy-gradient bias ``A_max G_max E|w - 1|``; holds under A1 to A3 (``contracts.assumptions``)."""
    return advantage_max * score_norm_max * np.asarray(abs_w_minus_1, dtype=np.float64)


def truncation_excess(reference_logp: ArrayLike, candidate_logp: ArrayLike, limit: float) -> Floats:
    """``E(w - c)+`` over pi_inf for the truncation limit c, per position, float64 [T]."""
    reference = log_normalise(np.asarray(reference_logp, dtype=np.float64))
    candidate = log_normalise(np.asarray(candidate_logp, dtype=np.float64))
    over = np.exp(reference) - limit * np.exp(candidate)  # pi_inf (w - c), finite where w is not
    return np.asarray(np.where(np.isneginf(candidate), 0.0, np.maximum(over, 0.0)).sum(axis=1))


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
