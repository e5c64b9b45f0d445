"""Metrics of generated answers: greedy answers to golden prompts, and answers to users.

A probe that requests prompt log-probabilities bypasses the prefix cache and generates nothing. A generation
probe answers a golden prompt the way users are served, through cache, decode and stream, and so covers those
parts. An observation is one probe; NaN where that kind of probe does not measure the metric. Clauses clip all
metrics but shares. Lists of most probable tokens are those that a server returns.

Answers to users are used where an operator allows sampled log-probabilities to be read. They have no
reference, so a kernel is compared with its own certified past on the same slice. User traffic changes as
well, so a clause on such a metric only informs (L1, with a budget) and moves no traffic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contracts.metrics.registry import register_metric

#: Columns that generation probes fill, in the order of reports.
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
    """Mean KL over the generated positions of two answers, up to their first different token, nats.

    ``generation_kl``: an answer against the stored reference. ``pair_kl``: two answers of one server to the
    same prompt, one computed without the cache and one read from it. ``decode_kl``: tokens as decoded against
    the same tokens scored as a prompt, over the worst stretch.
    """
    return sum(positions) / len(positions) if positions else 0.0


@register_metric("generation_gap_mean", family="N", unit="nats", columns={"none": "generation_gap"})
@register_metric("pair_gap_mean", family="N", unit="nats", columns={"none": "pair_gap"})
def first_difference_gap(row: Mapping[int, float], expected: int, chosen: int) -> float:
    """Log-probability of the reference's token minus that of the first different token, nats; 0 if none.

    In a pair, the answer computed without the cache is the reference. row: the reference's log-probabilities
    of its most probable tokens; a token not listed counts as the least probable of them, so the gap is a
    lower bound. A near tie is no sign of damage; a wide gap is.
    """
    return max(row[expected] - row.get(chosen, min(row.values())), 0.0)


@register_metric("greedy_gap_mean", family="N", unit="nats", columns={"none": "greedy_gap"})
def greedy_gap(row: Mapping[int, float], chosen: int) -> float:
    """Log-probability of the most probable token minus the greedy answer's, nats; an answer's largest."""
    return max(row.values()) - row[chosen]


@register_metric(
    "answer_broken_rate", family="S", unit="ratio", judgement="share", columns={"none": "answer_broken"}
)
def answer_broken(stop_reason: str, numbers_are_sound: bool) -> float:
    """1 for an answer without a stop reason or with invalid log-probabilities, else 0."""
    return float(not stop_reason or not numbers_are_sound)


@register_metric(
    "nonce_crossed", family="O", unit="ratio", judgement="per_observation", columns={"none": "nonce_crossed"}
)
def nonce_crossed(own: str, answered: str) -> float:
    """1 for an answer that lacks the nonce of its own request, else 0."""
    return float(own not in answered)


@register_metric(
    "grammar_invalid_rate", family="S", unit="ratio", judgement="share", columns={"none": "grammar_invalid"}
)
def grammar_invalid(matches: bool) -> float:
    """1 for a complete answer that violates the grammar of its request, else 0."""
    return float(not matches)


#: Columns that answers to users fill.
PASSIVE_COLUMNS: tuple[str, ...] = ("surprise_outside",)


@register_metric(
    "surprise_outside_rate", family="S", unit="ratio", judgement="share", columns={"none": "surprise_outside"}
)
def surprise_outside(surprise_nats: float, low_nats: float, high_nats: float) -> float:
    """1 for an answer whose mean surprise lies outside the limits of its kernel's certified past, else 0.

    Surprise is minus the log-probability of a sampled token. The limits are those of ``live.observe.past``.
    """
    return float(not low_nats <= surprise_nats <= high_nats)
