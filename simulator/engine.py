"""The fleet engine: B independent fleets of continuously batching replicas, exact per request.

A replica's decode stretches are jumped over in closed form and replicas are advanced only when somebody
looks at them, so the cost is a few operations per request instead of one event per engine step; the
plain one-event-per-step oracle in the tests gives the same times to round-off.

Whoever owns the clock (the SimPy fleet) feeds arrivals, advances to the instant of the next control tick
or fault, acts (``set_table``, ``set_effect``, ``crash`` ...) and reads. An action takes effect at the
fleet's current time, after everything that happens at that same instant.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.engine_records import Arrivals, Counters, EngineSpec, Gauges, ReplicaEffect


class FleetEngine:
    """``batch`` fleets of one layout. Results do not depend on ``batch`` nor on how often one advances.

    With ``keep_requests`` every request's record stays readable; otherwise records of finished requests
    are recycled, so memory is bounded by what is in flight plus the last feed.
    """

    def __init__(self, spec: EngineSpec, batch: int, *, keep_requests: bool = False) -> None:
        raise NotImplementedError

    @property
    def now_s(self) -> NDArray[np.float64]:
        """Current time of each fleet, float64 [B]."""
        raise NotImplementedError

    def feed(self, fleet: int, arrivals: Arrivals) -> None:
        """Append arrivals; they may not lie before the fleet's current time or earlier arrivals."""
        raise NotImplementedError

    def set_table(self, table: NDArray[np.float64]) -> None:
        """Route by ``table`` float64 [B, S, K + 1] from now on; the last column is shed."""
        raise NotImplementedError

    def set_rotation(self, in_rotation: NDArray[np.bool_]) -> None:
        """Balance only over these replicas, bool [B, R]; the others finish what they have."""
        raise NotImplementedError

    def set_violating(self, violating: NDArray[np.bool_]) -> None:
        """Ground truth for the exposure counters, bool [B, R, S]."""
        raise NotImplementedError

    def effect(self, fleet: int, replica: int) -> ReplicaEffect:
        """The effect in force on one replica."""
        raise NotImplementedError

    def set_effect(self, fleet: int, replica: int, effect: ReplicaEffect) -> None:
        """Change one replica now: the engine step under way ends as it began, the next one differs.

        Tokens made until that step boundary keep the old condition. Setting the effect in force again
        changes nothing, byte for byte; nor does a change of condition alone change any time.
        """
        raise NotImplementedError

    def crash(self, fleet: int, replica: int) -> None:
        """Kill one replica: what had streamed a token fails, the rest is retried elsewhere at once.

        It stays in the balancing set (until ``set_rotation``) and refuses connections until ``start``.
        """
        raise NotImplementedError

    def start(self, fleet: int, replica: int, delay_s: float = 0.0) -> None:
        """Let a dead replica accept connections, empty and with a clean cache, after ``delay_s``."""
        raise NotImplementedError

    def flush_cache(self, fleet: int, replica: int) -> None:
        """Forget cached prefixes, and with them those computed under a fault."""
        raise NotImplementedError

    def advance(self, until_s: float) -> None:
        """Advance every fleet to ``until_s``, arrivals and step ends at ``until_s`` included."""
        raise NotImplementedError

    def advance_one(self, fleet: int, until_s: float) -> None:
        """Advance one fleet to ``until_s``."""
        raise NotImplementedError

    def take_counters(self) -> Counters:
        """Counts since the previous call, then start again from zero."""
        raise NotImplementedError

    @property
    def latency_counts(self) -> NDArray[np.int64]:
        """Answers per latency bucket since the start, int64 [B, R, S, F, E + 1]: a live view, copy it.

        Not summed over edges; bucket e holds values in ``(edge[e-1], edge[e]]``, the last is open.
        """
        raise NotImplementedError

    def gauges(self) -> Gauges:
        """State of every replica at its fleet's current time."""
        raise NotImplementedError

    def requests(self, fleet: int) -> NDArray[np.void]:
        """Records (``REQUEST_RECORD``) of the requests still remembered, in order of arrival."""
        raise NotImplementedError
