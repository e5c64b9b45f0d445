"""How fast a replica is probed when it is crowded: probes then take from users what they take at all.

A replica with fewer than ``CROWDED`` requests has time between them, and is probed at the whole budget. From
there on probes ask for at most ``SHARE`` of the tokens that it serves. Measured on the shipped model: a token
of a prefill probe takes at most 2.8 times the CPU time that a saturated replica spends on a token of users,
log-probabilities included, and a scrape 5.3 ms (docs/live.md). So a share of 0.005 costs at most 1.4 %, and
with a scrape each second less than 2 % of a core.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from live.observe.metrics import EngineReading

#: Requests, running and waiting, from which on a replica is crowded.
CROWDED = 16.0
#: Tokens of probes over tokens that a crowded replica serves, at most.
SHARE = 0.005
#: No replica is probed more seldom than at this part of its budget: who is not looked at is not known.
LEAST_PACE = 0.1
_TOKENS = ("prompt_tokens", "generation_tokens")


@dataclass(slots=True)
class Crowding:
    """Listens to scrapes. budget_tokens_per_s: of all probes of a replica, at their whole pace."""

    budget_tokens_per_s: float
    _last: dict[str, EngineReading] = field(default_factory=dict)

    def paces(self, readings: Mapping[str, EngineReading]) -> dict[str, float]:
        """Replica -> part of the budget, ``LEAST_PACE`` to 1, of those that were scraped.

        What a server does not export, the first scrape of a process and a counter that fell slow nothing.
        """
        found = {name: self._pace(self._last.get(name), now) for name, now in readings.items()}
        self._last |= readings
        return found

    def _pace(self, last: EngineReading | None, now: EngineReading) -> float:
        requests = now.gauges.get("running", 0.0) + now.gauges.get("waiting", 0.0)
        if last is None or not requests >= CROWDED:
            return 1.0
        served = served_tokens_per_s(last, now)
        if served is None:
            return 1.0
        return min(1.0, max(LEAST_PACE, SHARE * served / self.budget_tokens_per_s))


def served_tokens_per_s(last: EngineReading, now: EngineReading) -> float | None:
    """Tokens of prompts and answers between two scrapes, per second; None where they do not say."""
    passed_s = now.read_at_s - last.read_at_s
    if not all(name in one.counters for name in _TOKENS for one in (last, now)) or not passed_s > 0.0:
        return None
    risen = [now.counters[name] - last.counters[name] for name in _TOKENS]
    return sum(risen) / passed_s if min(risen) >= 0.0 else None
