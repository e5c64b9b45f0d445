"""Distances between the next-token distributions of the reference and of a candidate kernel.

``reference`` is pi_train, ``candidate`` pi_inf. All arrays are log-probabilities at one temperature,
float64 ``[T, V]``: T positions of one prompt, V tokens. Every function returns one number per position,
float64 ``[T]``; ``prompt_columns`` reduces them to one number per prompt. KL is KL(train || inf) in
nats. A token that both kernels forbid (-inf twice) is left out; a token that only one
forbids is a support mismatch and makes the log-ratio infinite.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.metrics.registry import register_metric

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def log_normalise(values: NDArray[np.floating]) -> Floats:
    """Log-probabilities ``[T, V]`` from log-probabilities or logits ``[T, V]``, in float64."""
    wide = np.asarray(values, dtype=np.float64)
    if wide.ndim != 2 or wide.shape[1] == 0:
        raise ValueError(f"log-probabilities must be [positions, vocabulary], got shape {wide.shape}")
    if np.isnan(wide).any() or np.isposinf(wide).any():
        raise ValueError("log-probabilities must be finite or -inf, got NaN or +inf")
    peak = wide.max(axis=1, keepdims=True)
    if np.isneginf(peak).any():
        raise ValueError("a position forbids every token: all its log-probabilities are -inf")
    return np.asarray(wide - peak - np.log(np.exp(wide - peak).sum(axis=1, keepdims=True)))


def log_ratio(reference: Floats, candidate: Floats) -> Floats:
    """Log-ratio log w = log pi_train - log pi_inf, ``[T, V]``; 0 where both forbid the token."""
    both = np.isneginf(reference) & np.isneginf(candidate)
    return np.subtract(reference, candidate, out=np.zeros_like(reference), where=~both)


def _expect(probability: Floats, value: Floats) -> Floats:
    terms = np.multiply(probability, value, out=np.zeros_like(value), where=probability > 0.0)
    return np.asarray(terms.sum(axis=1))


@register_metric(
    "kl_p95",
    family="N",
    unit="nats",
    judgement="percentile(95)",
    columns={"full_vocab": "kl_mean@full_vocab", "top_k": "kl_mean@top_k"},
)
@register_metric(
    "kl_p99",
    family="N",
    unit="nats",
    judgement="percentile(99)",
    columns={"full_vocab": "kl_mean@full_vocab", "top_k": "kl_mean@top_k"},
)
@register_metric(
    "kl_max",
    family="N",
    unit="nats",
    judgement="per_observation",
    columns={"full_vocab": "kl_max@full_vocab"},
)
@register_metric(
    "kl",
    family="N",
    unit="nats",
    judgement="per_observation",
    columns={"full_vocab": "kl_mean@full_vocab", "top_k": "kl_mean@top_k"},
)
@register_metric(
    "kl_mean",
    family="N",
    unit="nats",
    columns={"full_vocab": "kl_mean@full_vocab", "top_k": "kl_mean@top_k"},
)
def kl(reference: Floats, candidate: Floats) -> Floats:
    """KL(train || inf) per position, nats; a prompt's value is the mean (kl_max: the largest)."""
    value = _expect(np.exp(reference), log_ratio(reference, candidate))
    return np.maximum(value, 0.0)  # rounding may leave -1e-17 where the true value is 0


@register_metric(
    "tv_p95",
    family="N",
    unit="probability",
    judgement="percentile(95)",
    columns={"full_vocab": "tv_mean@full_vocab", "top_k": "tv_mean@top_k"},
)
@register_metric(
    "tv_p99",
    family="N",
    unit="probability",
    judgement="percentile(99)",
    columns={"full_vocab": "tv_mean@full_vocab", "top_k": "tv_mean@top_k"},
)
@register_metric(
    "tv_max",
    family="N",
    unit="probability",
    judgement="per_observation",
    columns={"full_vocab": "tv_max@full_vocab"},
)
@register_metric(
    "tv",
    family="N",
    unit="probability",
    judgement="per_observation",
    columns={"full_vocab": "tv_mean@full_vocab", "top_k": "tv_mean@top_k"},
)
@register_metric(
    "tv_mean",
    family="N",
    unit="probability",
    columns={"full_vocab": "tv_mean@full_vocab", "top_k": "tv_mean@top_k"},
)
def tv(reference: Floats, candidate: Floats) -> Floats:
    """Total variation per position, 0..1; a prompt's value is the mean (tv_max: the largest)."""
    return np.asarray(0.5 * np.abs(np.exp(reference) - np.exp(candidate)).sum(axis=1))


def _register_logit(name: str, column: str) -> None:
    """Register the percentile forms of a logit distance over ``column``."""
    columns = {"full_vocab": f"{column}@full_vocab"}
    for share in (50, 95, 99):
        register_metric(
            f"{name}_p{share}", family="N", unit="logits", judgement=f"percentile({share})", columns=columns
        )(logit_l2 if name == "logit_l2" else logit_linf)


@register_metric(
    "logit_l2",
    family="N",
    unit="logits",
    judgement="per_observation",
    columns={"full_vocab": "l2_mean@full_vocab"},
)
def logit_l2(reference: Floats, candidate: Floats, temperature: float = 1.0) -> Floats:
    """L2 norm of the logit difference less its vocabulary mean; a prompt's value is the mean."""
    difference, allowed, one_sided = _logit_difference(reference, candidate)
    count = allowed.sum(axis=1, keepdims=True)
    centred = np.where(allowed, difference - difference.sum(axis=1, keepdims=True) / count, 0.0)
    length = temperature * np.sqrt((centred * centred).sum(axis=1))
    return np.where(one_sided, np.inf, length)


@register_metric(
    "logit_linf_mean",
    family="N",
    unit="logits",
    columns={"full_vocab": "linf_mean@full_vocab"},
)
@register_metric(
    "logit_linf",
    family="N",
    unit="logits",
    judgement="per_observation",
    columns={"full_vocab": "linf_max@full_vocab"},
)
def logit_linf(reference: Floats, candidate: Floats, temperature: float = 1.0) -> Floats:
    """d: half the range of the logit difference (common shift removed); a prompt's value is the largest."""
    difference, allowed, one_sided = _logit_difference(reference, candidate)
    highest = np.max(difference, axis=1, where=allowed, initial=-np.inf)
    lowest = np.min(difference, axis=1, where=allowed, initial=np.inf)
    return np.where(one_sided, np.inf, 0.5 * temperature * (highest - lowest))


def _logit_difference(
    reference: Floats, candidate: Floats
) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
    """Difference, 0 where not allowed, and tokens both allow, [T, V]; support mismatches, [T]."""
    allowed = np.asarray(~(np.isneginf(reference) | np.isneginf(candidate)))
    one_sided = np.asarray((np.isneginf(reference) ^ np.isneginf(candidate)).any(axis=1))
    difference = np.subtract(reference, candidate, out=np.zeros_like(reference), where=allowed)
    return difference, allowed, np.asarray(one_sided | ~allowed.any(axis=1))


_register_logit("logit_l2", "l2_mean")
_register_logit("logit_linf", "linf_max")


def top_tokens(log_probability: Floats, count: int) -> Integers:
    """The ``count`` most probable tokens ``[T, count]``, ties to the lower id."""
    if count == 1:
        return np.asarray(log_probability.argmax(axis=1)[:, None])
    floor = np.partition(log_probability, -count, axis=1)[:, -count]
    keep = log_probability >= floor[:, None]  # sorting the whole vocabulary costs twelve times as much
    few = np.argsort(~keep, axis=1, kind="stable")[:, : int(keep.sum(axis=1).max())]
    order = np.argsort(-np.take_along_axis(log_probability, few, axis=1), axis=1, kind="stable")
    return np.asarray(np.take_along_axis(few, order[:, :count], axis=1))


def _overlap(reference: Floats, candidate: Floats, count: int) -> Floats:
    count = min(count, reference.shape[1])
    left, right = top_tokens(reference, count), top_tokens(candidate, count)
    return np.asarray((left[:, :, None] == right[:, None, :]).any(axis=2).mean(axis=1))


@register_metric(
    "top1_overlap",
    family="N",
    unit="ratio",
    sense="at_least",
    columns={"full_vocab": "top1_overlap@full_vocab"},
)
def top1_overlap(reference: Floats, candidate: Floats) -> Floats:
    """1 where both kernels prefer the same token, else 0."""
    return _overlap(reference, candidate, 1)


@register_metric(
    "top1_flip",
    family="N",
    unit="ratio",
    columns={"full_vocab": "top1_flip@full_vocab", "top_k": "top1_flip@top_k"},
)
def top1_flip(reference: Floats, candidate: Floats) -> Floats:
    """1 where the preferred token changed, else 0; a prompt's value is the share of positions."""
    return 1.0 - _overlap(reference, candidate, 1)


@register_metric(
    "top5_overlap",
    family="N",
    unit="ratio",
    sense="at_least",
    columns={"full_vocab": "top5_overlap@full_vocab"},
)
def top5_overlap(reference: Floats, candidate: Floats) -> Floats:
    """Share of the five preferred tokens that the kernels have in common."""
    return _overlap(reference, candidate, 5)


@register_metric(
    "top10_overlap",
    family="N",
    unit="ratio",
    sense="at_least",
    columns={"full_vocab": "top10_overlap@full_vocab"},
)
def top10_overlap(reference: Floats, candidate: Floats) -> Floats:
    """Share of the ten preferred tokens that the kernels have in common."""
    return _overlap(reference, candidate, 10)


@register_metric(
    "abs_log_w",
    family="N",
    unit="nats",
    judgement="per_observation",
    columns={"full_vocab": "abs_log_w@full_vocab", "sampled": "abs_log_w@sampled"},
)
@register_metric(
    "abs_log_w_mean",
    family="N",
    unit="nats",
    columns={"full_vocab": "abs_log_w@full_vocab", "sampled": "abs_log_w@sampled"},
)
def abs_log_w(reference: Floats, candidate: Floats) -> Floats:
    """E|log w| over pi_inf, w = pi_train / pi_inf, nats."""
    return _expect(np.exp(candidate), np.abs(log_ratio(reference, candidate)))


@register_metric(
    "w_log_w_mean",
    family="N",
    unit="nats",
    columns={"full_vocab": "w_log_w@full_vocab", "sampled": "w_log_w@sampled"},
)
def w_log_w(reference: Floats, candidate: Floats) -> Floats:
    """E[w log w] over pi_inf, nats; equal to KL(train || inf) when the supports overlap."""
    ratio = log_ratio(reference, candidate)
    finite = np.where(np.isneginf(ratio), 0.0, ratio)  # w log w -> 0 as w -> 0
    return _expect(np.exp(candidate), np.exp(finite) * finite * ~np.isneginf(ratio))


@register_metric(
    "token_prob_error",
    family="N",
    unit="ratio",
    columns={"sampled": "token_prob_error@sampled", "full_vocab": "token_prob_error@full_vocab"},
)
def token_prob_error(reference: Floats, candidate: Floats) -> Floats:
    """Mean multiplicative token-probability error E exp|log w| over pi_inf; 1 is no error."""
    return _expect(np.exp(candidate), np.exp(np.abs(log_ratio(reference, candidate))))
