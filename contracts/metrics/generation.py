"""Metrics of generated answers: of golden prompts answered greedily, and of users' own.

A prompt whose log-probabilities are asked for skips the prefix cache and samples nothing; golden prompts are
answered as users get answers, through cache, decode and stream, and show what such a probe cannot. An
observation is one probe; NaN where a probe of that kind does not measure it. All but shares are clipped by
their clause. Lists of most probable tokens are those that a server returns.

Users' own answers are used where an operator allows sampled log-probabilities to be read. There is no
reference for them, so a kernel is compared with its own certified past on the same slice. Users change as
well, so a clause on such a metric informs (L1, with a budget) and moves no traffic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contracts.metrics.registry import register_metric

#: Columns that these metrics read, in the order of telling.
GENERATION_COLUMNS: tuple[str, ...] = (
    "generation_kl@top_k",
    "generation_gap",
    "pair_kl@top_k",
    "pair_gap",
    "decode_kl@top_k",
    "greedy_gap",
    "answer_broken",
    "nonce_crossed",
    "grammar_invalid",
)


@register_metric("decode_kl_mean", family="N", unit="nats", columns={"top_k": "decode_kl@top_k"})
@register_metric("pair_kl_mean", family="N", unit="nats", columns={"top_k": "pair_kl@top_k"})
@register_metric("generation_kl_mean", family="N", unit="nats", columns={"top_k": "generation_kl@top_k"})
def mean_kl(positions: Sequence[float]) -> float:
    """Mean KL over the generated positions that two answers share, up to their first different token.

    ``generation_kl``: to the stored reference. ``pair_kl``: of the same server's own answers to one prompt,
    computed anew and read from the cache. ``decode_kl``: of tokens as they were decoded to the same tokens
    scored as a prompt, in the worst stretch. Nats.
    """
    return sum(positions) / len(positions) if positions else 0.0


@register_metric("generation_gap_mean", family="N", unit="nats", columns={"none": "generation_gap"})
@register_metric("pair_gap_mean", family="N", unit="nats", columns={"none": "pair_gap"})
def first_difference_gap(row: Mapping[int, float], expected: int, chosen: int) -> float:
    """How much less probable the first different token is to the reference than its own, nats; 0 for none.

    Of a pair the reference is the answer computed anew. row: its log-probabilities of the most probable
    tokens; one that is not there counts as the least of them, so the gap is a lower bound. A near tie is no
    sign of damage, a wide gap is.
    """
    return max(row[expected] - row.get(chosen, min(row.values())), 0.0)


@register_metric("greedy_gap_mean", family="N", unit="nats", columns={"none": "greedy_gap"})
def greedy_gap(row: Mapping[int, float], chosen: int) -> float:
    """By how much a greedy answer missed its own most probable token, nats; the largest of an answer."""
    return max(row.values()) - row[chosen]


@register_metric(
    "answer_broken_rate", family="S", unit="ratio", judgement="share", columns={"none": "answer_broken"}
)
def answer_broken(stop_reason: str, numbers_are_sound: bool) -> float:
    """1 for an answer that ended without a stop reason, or with log-probabilities that are none; else 0."""
    return float(not stop_reason or not numbers_are_sound)


@register_metric(
    "nonce_crossed", family="O", unit="ratio", judgement="per_observation", columns={"none": "nonce_crossed"}
)
def nonce_crossed(own: str, answered: str) -> float:
    """1 for an answer that names another request than the one it answers, else 0."""
    return float(own not in answered)


@register_metric(
    "grammar_invalid_rate", family="S", unit="ratio", judgement="share", columns={"none": "grammar_invalid"}
)
def grammar_invalid(matches: bool) -> float:
    """1 for a complete answer to a request with a grammar that does not keep it, else 0."""
    return float(not matches)


#: Columns that these metrics read.
PASSIVE_COLUMNS: tuple[str, ...] = ("surprise_outside",)


@register_metric(
    "surprise_outside_rate", family="S", unit="ratio", judgement="share", columns={"none": "surprise_outside"}
)
def surprise_outside(surprise_nats: float, low_nats: float, high_nats: float) -> float:
    """1 for an answer whose mean surprise lies outside the limits of its kernel's certified past, else 0.

    Surprise: minus the log-probability of a sampled token. Limits: those of ``live.observe.past``, nats.
    """
    return float(not low_nats <= surprise_nats <= high_nats)
