"""Schedules probes: a token budget, slices in turn, and one probe in flight per replica and schedule.

Deterministic: it reads no clock, and draws from a named random stream of the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import cycle
from typing import NamedTuple

import numpy as np

from contracts.rng import stream


class Lane(StrEnum):
    """A replica has at most one probe of each lane in flight."""

    SHORT = "short"
    LONG = "long"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeBudget:
    """What probes may cost a replica."""

    tokens_per_s: float
    """Prompt tokens per s on average, never more than two prompts ahead."""
    jitter_ratio: float = 0.3
    """Each wait is extended by a random share up to this, so that replicas are not probed in step."""

    def __post_init__(self) -> None:
        if not self.tokens_per_s > 0.0 or not 0.0 <= self.jitter_ratio <= 10.0:
            raise ValueError(
                f"expected tokens_per_s > 0 and a jitter_ratio of 0 to 10, got {self.tokens_per_s:g} and "
                f"{self.jitter_ratio:g}"
            )


class ProbePrompt(NamedTuple):
    """One prompt that may be sent. place: index in the list of prompts; tokens: its cost."""

    slice: int
    place: int
    tokens: int


class Due(NamedTuple):
    """One probe to send now."""

    replica: str
    prompt: ProbePrompt


@dataclass(slots=True)
class _Turn:
    """A replica's position in its round of slices and prompts."""

    rng: np.random.Generator
    orders: list[list[ProbePrompt]]
    slices: cycle[int]
    at: list[int]
    next_at_s: float = 0.0
    busy: bool = False
    prompt: ProbePrompt | None = field(default=None)


class ProbeSchedule:
    """The probes of every replica of a fleet, from ``began_at_s`` on."""

    def __init__(
        self,
        replicas: Sequence[str],
        prompts: Sequence[ProbePrompt],
        budget: ProbeBudget,
        *,
        seed: int,
        began_at_s: float,
        kind: str = "",
    ) -> None:
        """``kind``: gives each kind of probe its own random stream."""
        if not replicas or not prompts:
            raise ValueError(f"expected replicas and prompts, got {len(replicas)} and {len(prompts)}")
        self._budget = budget
        self._stream = f"probes-{kind}" if kind else "probes"
        self._turns = {name: self._begin(name, prompts, seed, began_at_s) for name in replicas}

    def due(
        self,
        now_s: float,
        free: Callable[[str], bool] = lambda _: True,
        pace: Callable[[str], float] = lambda _: 1.0,
    ) -> list[Due]:
        """Probes to send at ``now_s``; their replicas get no other until ``done``.

        If a probe is sent late because this was called late, the next one is due earlier by the delay. free:
        whether a replica can take a probe now; if not, its turn waits. pace: part of the budget at which a
        replica is probed, above 0 and at most 1.
        """
        found = []
        for replica, turn in self._turns.items():
            if turn.busy or now_s < turn.next_at_s or not free(replica):
                continue
            prompt = _take(turn)
            wait_s = self._wait_s(turn, prompt) / pace(replica)
            turn.busy, turn.next_at_s = True, max(turn.next_at_s, now_s - wait_s) + wait_s
            found.append(Due(replica, prompt))
        return found

    def done(self, replica: str) -> None:
        """Note that the replica's probe ended, with whatever result."""
        self._turns[replica].busy = False

    def _begin(self, name: str, prompts: Sequence[ProbePrompt], seed: int, began_at_s: float) -> _Turn:
        rng = stream(seed, self._stream, name)
        by_slice: Mapping[int, list[ProbePrompt]] = {
            s: [one for one in prompts if one.slice == s] for s in sorted({one.slice for one in prompts})
        }
        orders = [[own[int(i)] for i in rng.permutation(len(own))] for own in by_slice.values()]
        first = int(rng.integers(len(orders)))
        turns = cycle([*range(first, len(orders)), *range(first)])
        turn = _Turn(rng=rng, orders=orders, slices=turns, at=[0] * len(orders))
        mean_s = float(np.mean([one.tokens for one in prompts])) / self._budget.tokens_per_s
        turn.next_at_s = began_at_s + float(rng.random()) * mean_s
        return turn

    def _wait_s(self, turn: _Turn, prompt: ProbePrompt) -> float:
        longer = 1.0 + self._budget.jitter_ratio * float(turn.rng.random())
        return prompt.tokens / self._budget.tokens_per_s * longer


def _take(turn: _Turn) -> ProbePrompt:
    """The next prompt of the next slice; a slice's prompts repeat in a fixed order."""
    place = next(turn.slices)
    order = turn.orders[place]
    prompt = order[turn.at[place]]
    turn.at[place] = (turn.at[place] + 1) % len(order)
    return prompt
