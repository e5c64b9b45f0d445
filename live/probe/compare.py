"""Compares two greedy answers to one prompt, up to their first different token.

After that token the two continue different texts, so nothing that follows can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contracts.metrics.columns import LEAST_REST
from contracts.metrics.generation import first_difference_gap, greedy_gap, mean_kl
from live.measure.backends.openai_backend import TOP_K
from live.probe.answers import GreedyAnswer

Rows = Sequence[Mapping[int, float]]
#: Positions in one stretch of ``worst_stretch_kl``, so that damage to a few positions is not averaged away.
STRETCH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerDifference:
    """Difference of two answers. kl: mean nats over the shared positions; gap: nats, at the first different
    token (0: none); first: its position (None: the answers are equal).
    """

    kl: float
    gap: float
    first: int | None


def difference(expected: GreedyAnswer, found: GreedyAnswer) -> AnswerDifference:
    """How ``found`` differs from ``expected``; both have at least one position and valid numbers."""
    most = min(len(expected.token_ids), len(found.token_ids))
    pairs = zip(expected.token_ids, found.token_ids, strict=False)
    unequal = (at for at, (one, other) in enumerate(pairs) if one != other)
    first = next(unequal, None if len(expected.token_ids) == len(found.token_ids) else most)
    shared = most if first is None else min(first + 1, most)
    gap = 0.0
    if first is not None and first < most:
        gap = first_difference_gap(expected.rows[first], expected.token_ids[first], found.token_ids[first])
    return AnswerDifference(
        kl=mean_kl(position_kl(expected.rows[:shared], found.rows[:shared])), gap=gap, first=first
    )


def position_kl(expected: Rows, found: Rows) -> list[float]:
    """KL(expected || found) of each position from lists of most probable tokens: lower bounds, nats."""
    return [_least_kl(one, other) for one, other in zip(expected, found, strict=True)]


def _least_kl(expected: Mapping[int, float], found: Mapping[int, float]) -> float:
    """The smallest KL that two lists of most probable tokens allow.

    Tokens that ``found`` does not list form one event. Each has at most the probability of the last listed
    token there. All other tokens form the rest bucket.
    """
    mine = {token: math.exp(value) for token, value in _best(expected).items()}
    theirs = {token: math.exp(value) for token, value in found.items()}
    shared = [(mine[token], theirs[token]) for token in mine if theirs.get(token, 0.0) > 0.0]
    missing = [value for token, value in mine.items() if theirs.get(token, 0.0) == 0.0]
    left, other = (max(1.0 - sum(pair[at] for pair in shared), LEAST_REST) for at in (0, 1))
    lost = min(sum(missing), left)
    most = len(missing) * math.exp(min(_best(found).values()))
    given = min(max(most, LEAST_REST), other * lost / left)
    parts = [*shared, (lost, given), (left - lost, other - given)]
    kl = sum(p * math.log(p / q) for p, q in parts if p > LEAST_REST and q > 0.0)
    return max(kl, 0.0)


def _best(row: Mapping[int, float]) -> dict[int, float]:
    """Its ``TOP_K`` most probable tokens."""
    return dict(sorted(row.items(), key=lambda item: (-item[1], item[0]))[:TOP_K])


def worst_stretch_kl(expected: Rows, found: Rows) -> float:
    """Largest mean KL over a stretch of ``STRETCH`` positions, nats; 0 without positions."""
    kl = position_kl(expected, found)
    return max((mean_kl(kl[at : at + STRETCH]) for at in range(0, len(kl), STRETCH)), default=0.0)


def largest_greedy_gap(answer: GreedyAnswer) -> float:
    """Largest gap between a token of the answer and the most probable one of its own list, nats."""
    pairs = zip(answer.rows, answer.token_ids, strict=True)
    return max((greedy_gap(row, token) for row, token in pairs), default=0.0)
