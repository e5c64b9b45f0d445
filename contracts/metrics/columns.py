"""One number per prompt and column, from the log-probabilities of two kernels on its positions.

Each column has a domain, the values that its metric can take. A value outside it means a broken exporter or
a wrong unit; judging it would only inflate the spread of the other observations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.metrics import numeric
from contracts.metrics.numeric import Floats, Integers

#: Per-prompt columns in the order of ``PromptColumns.values``.
COLUMN_NAMES: tuple[str, ...] = (
    "kl_mean@full_vocab",
    "kl_max@full_vocab",
    "tv_mean@full_vocab",
    "tv_max@full_vocab",
    "linf_mean@full_vocab",
    "linf_max@full_vocab",
    "l2_mean@full_vocab",
    "top1_flip@full_vocab",
    "top1_overlap@full_vocab",
    "top5_overlap@full_vocab",
    "top10_overlap@full_vocab",
    "abs_log_w@full_vocab",
    "w_log_w@full_vocab",
    "token_prob_error@full_vocab",
    "abs_log_w@sampled",
    "w_log_w@sampled",
    "token_prob_error@sampled",
    "kl_mean@top_k",
    "tv_mean@top_k",
    "top1_flip@top_k",
)

#: A rest bucket below this is rounding error: servers return 32-bit log-probabilities.
LEAST_REST = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptColumns:
    """Column values of one prompt."""

    names: tuple[str, ...]  # [M]
    values: Floats  # [M] in the unit of each column, NaN where not measured

    def __getitem__(self, name: str) -> float:
        """Value of column ``name``; KeyError lists the columns."""
        if name not in self.names:
            raise KeyError(f"no column {name!r}; there are: {', '.join(self.names)}")
        return float(self.values[self.names.index(name)])


def prompt_columns(
    reference_logp: NDArray[np.floating],
    candidate_logp: NDArray[np.floating],
    token_ids: NDArray[np.integer] | None = None,
    *,
    temperature: float = 1.0,
    top_k: int = 20,
) -> PromptColumns:
    """All columns of one prompt, in the order of ``COLUMN_NAMES``.

    reference_logp, candidate_logp: [T, V], log-probabilities at ``temperature`` (or logits divided by
        it: they are normalised here). token_ids: int [T], tokens *drawn from the candidate* at these
        positions (``draw_tokens``), for the ``sampled`` columns; None leaves them NaN. Golden tokens
        are not a sample of pi_inf and must not be passed.
    top_k: tokens the candidate returns; the rest is one bucket, so ``top_k`` columns of KL and TV are
        lower bounds. Raises ValueError on shapes that do not fit or NaN.
    """
    reference = numeric.log_normalise(reference_logp)
    candidate = numeric.log_normalise(candidate_logp)
    if reference.shape != candidate.shape:
        raise ValueError(f"reference {reference.shape} and candidate {candidate.shape} differ in shape")
    values = _full_vocab(reference, candidate, temperature)
    values |= _sampled(reference, candidate, token_ids)
    values |= _top_k(reference, candidate, top_k)
    return PromptColumns(names=COLUMN_NAMES, values=np.array([values[name] for name in COLUMN_NAMES]))


def draw_tokens(candidate_logp: NDArray[np.floating], rng: np.random.Generator) -> Integers:
    """One token per position ``[T]`` drawn from the candidate's distributions ``[T, V]``."""
    probability: Floats = np.asarray(np.exp(numeric.log_normalise(candidate_logp)))
    cumulative: Floats = np.cumsum(probability, axis=1)
    cumulative /= cumulative[:, -1:]  # rounding must not leave a draw beyond the last token
    drawn = (rng.random((cumulative.shape[0], 1)) >= cumulative).sum(axis=1)
    return np.asarray(drawn, dtype=np.int64)


def top_k_columns(
    reference_top: NDArray[np.floating], candidate_top: NDArray[np.floating]
) -> tuple[float, float]:
    """``(kl_mean, tv_mean)`` of returned top-k log-probabilities, both lower bounds.

    candidate_top: [T, k], log-probabilities of the k tokens the server returned; reference_top:
    [T, k], the reference's log-probabilities of the *same* tokens. The rest is one bucket.
    """
    coarse_reference, coarse_candidate = _with_rest(reference_top, candidate_top)
    kl = numeric.kl(coarse_reference, coarse_candidate)
    tv = numeric.tv(coarse_reference, coarse_candidate)
    return float(kl.mean()), float(tv.mean())


def _with_rest(
    reference_top: NDArray[np.floating], candidate_top: NDArray[np.floating]
) -> tuple[Floats, Floats]:
    """Log-probabilities ``[T, k + 1]`` of the returned tokens and the rest bucket, for both kernels.

    Tokens are merged into the rest bucket once either kernel's remainder is below ``LEAST_REST``, where it
    is mostly rounding error. Merging coarsens further, so the result is still a lower bound.
    """
    stacked: Floats = np.stack([reference_top, candidate_top]).astype(np.float64)
    probability: Floats = np.asarray(np.exp(stacked), dtype=np.float64)
    keep = ((1.0 - np.cumsum(probability, axis=2)) >= LEAST_REST).all(axis=0)
    kept = np.where(keep, probability, 0.0)
    with_rest = np.concatenate([kept, 1.0 - kept.sum(axis=2, keepdims=True)], axis=2)
    with np.errstate(divide="ignore"):
        coarse = np.log(with_rest)
    return coarse[0], coarse[1]


def _full_vocab(reference: Floats, candidate: Floats, temperature: float) -> dict[str, float]:
    kl, tv = numeric.kl(reference, candidate), numeric.tv(reference, candidate)
    linf = numeric.logit_linf(reference, candidate, temperature)
    named = {
        "kl_mean": kl.mean(),
        "kl_max": kl.max(),
        "tv_mean": tv.mean(),
        "tv_max": tv.max(),
        "linf_mean": linf.mean(),
        "linf_max": linf.max(),
        "l2_mean": numeric.logit_l2(reference, candidate, temperature).mean(),
        "top1_flip": numeric.top1_flip(reference, candidate).mean(),
        "top1_overlap": numeric.top1_overlap(reference, candidate).mean(),
        "top5_overlap": numeric.top5_overlap(reference, candidate).mean(),
        "top10_overlap": numeric.top10_overlap(reference, candidate).mean(),
        "abs_log_w": numeric.abs_log_w(reference, candidate).mean(),
        "w_log_w": numeric.w_log_w(reference, candidate).mean(),
        "token_prob_error": numeric.token_prob_error(reference, candidate).mean(),
    }
    return {f"{name}@full_vocab": float(value) for name, value in named.items()}


def _sampled(reference: Floats, candidate: Floats, token_ids: NDArray[np.integer] | None) -> dict[str, float]:
    names = ("abs_log_w@sampled", "w_log_w@sampled", "token_prob_error@sampled")
    if token_ids is None:
        return dict.fromkeys(names, float("nan"))
    tokens = np.asarray(token_ids, dtype=np.int64)
    if tokens.shape != reference.shape[:1]:
        raise ValueError(f"token_ids must have shape {reference.shape[:1]}, got {tokens.shape}")
    rows = np.arange(tokens.size)
    log_w = numeric.log_ratio(reference, candidate)[rows, tokens]
    return dict(zip(names, sampled_columns(log_w), strict=True))


def sampled_columns(log_w: Floats) -> tuple[float, float, float]:
    """``(abs_log_w, w_log_w, token_prob_error)`` from log w ``[T]`` at tokens the candidate drew."""
    weighted = np.where(np.isneginf(log_w), 0.0, np.exp(log_w) * np.where(np.isneginf(log_w), 0.0, log_w))
    magnitude = np.abs(log_w)
    return float(magnitude.mean()), float(weighted.mean()), float(np.exp(magnitude).mean())


def _top_k(reference: Floats, candidate: Floats, top_k: int) -> dict[str, float]:
    if top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}")
    chosen = numeric.top_tokens(candidate, min(top_k, candidate.shape[1]))
    kl, tv = top_k_columns(
        np.take_along_axis(reference, chosen, axis=1), np.take_along_axis(candidate, chosen, axis=1)
    )
    flips = float(numeric.top1_flip(reference, candidate).mean())
    return {"kl_mean@top_k": kl, "tv_mean@top_k": tv, "top1_flip@top_k": flips}


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Values from ``low`` to ``high``; ``whole``: integers only."""

    low: float = -math.inf
    high: float = math.inf
    whole: bool = False

    def holds(self, value: float) -> bool:
        """True if ``value`` lies in the domain."""
        return self.low <= value <= self.high and (not self.whole or value == int(value))

    def __str__(self) -> str:
        if self.whole:
            return " or ".join(f"{value}" for value in range(int(self.low), int(self.high) + 1))
        return f"{self.low:g} to {self.high:g}" if math.isfinite(self.high) else f"at least {self.low:g}"


_EVENT, _SHARE, _SIZE = Domain(low=0.0, high=1.0, whole=True), Domain(low=0.0, high=1.0), Domain(low=0.0)
_DIFFERENCE, _ANY = Domain(low=-1.0, high=1.0, whole=True), Domain()

#: Domains by column name without estimator. ``w_log_w``, reward gaps and advantages can have either sign.
_DOMAINS: dict[str, Domain] = {
    **dict.fromkeys(("kl_mean", "kl_max", "linf_mean", "linf_max", "l2_mean", "abs_log_w"), _SIZE),
    **dict.fromkeys(("tv_mean", "tv_max", "top1_flip", "top1_overlap", "top5_overlap"), _SHARE),
    **dict.fromkeys(("top10_overlap", "kv_used_ratio", "lost_mass"), _SHARE),
    **dict.fromkeys(("latency_ms", "ttft_ms", "inter_token_ms", "throughput_tokens_per_s"), _SIZE),
    **dict.fromkeys(("peak_memory_bytes", "determinism_window", "score_norm", "step_time_ratio"), _SIZE),
    **dict.fromkeys(
        ("generation_kl", "generation_gap", "pair_kl", "pair_gap", "decode_kl", "greedy_gap"), _SIZE
    ),
    **dict.fromkeys(("answer_broken", "nonce_crossed", "grammar_invalid", "surprise_outside"), _EVENT),
    **dict.fromkeys(("failed", "fingerprint_mismatch", "trace_fields_missing", "replay_mismatch"), _EVENT),
    **dict.fromkeys(("refusal_difference", "parse_difference"), _DIFFERENCE),
    "token_prob_error": Domain(low=1.0),
}


def domain_of(column: str) -> Domain:
    """Domain of ``column`` ("<column>@<estimator>"); all numbers for a column of a plug-in."""
    return _DOMAINS.get(column.partition("@")[0], _ANY)
