"""Moments of importance weights by definition: the reference for the bounds on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contracts.metrics.numeric import log_normalise, log_ratio

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportanceMoments:
    """Moments of w = pi_train / pi_inf under pi_inf, per position; T positions."""

    abs_w_minus_1: Floats  # [T] E|w - 1|, 2 TV where no mass is lost
    w_log_w: Floats  # [T] E[w log w], nats; KL(train || inf) where no mass is lost
    abs_log_w: Floats  # [T] E|log w|, nats
    lost_mass: Floats  # [T] train mass where pi_inf is 0


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


def truncation_excess(reference_logp: ArrayLike, candidate_logp: ArrayLike, limit: float) -> Floats:
    """``E(w - c)+`` over pi_inf for the truncation limit c, per position, float64 [T]."""
    reference = log_normalise(np.asarray(reference_logp, dtype=np.float64))
    candidate = log_normalise(np.asarray(candidate_logp, dtype=np.float64))
    over = np.exp(reference) - limit * np.exp(candidate)  # pi_inf (w - c), finite where w is not
    return np.asarray(np.where(np.isneginf(candidate), 0.0, np.maximum(over, 0.0)).sum(axis=1))
