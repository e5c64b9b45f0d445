"""Last engine step of each replica, which distinguishes a hang from one long answer.

A replica that generates one long answer may end no request for minutes, while its engine steps all the time.
So a hang is the absence of engine steps, not of ended requests. It is known only while the engine's counters
are read: they show whether the engine stepped between two scrapes, for a probe or for a request. A replica
without these counters cannot be judged here; ``controller.judge.replicas.hang`` judges it by its probes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from contracts.telemetry import FleetTelemetry
from contracts.units import MS_PER_S
from controller.perceive.reading import plain
from controller.state import ControllerState


class Steps(NamedTuple):
    """Last observed engine steps; written to."""

    counted_at_s: NDArray[np.float64]  # [B, R], the engine's counters were last read (NaN: never)
    stepped_at_s: NDArray[np.float64]  # [B, R], latest possible instant of the last step


class EngineCounts(NamedTuple):
    """Engine counters of one telemetry."""

    fresh: NDArray[np.bool_]  # [B, R], a new scrape arrived
    span_s: NDArray[np.float64]  # [B, R], time that the counts cover
    iterations: NDArray[np.float64]  # [B, R], engine steps in it (NaN: not exported or unknown)
    generated: NDArray[np.float64]  # [B, R], tokens in it, likewise


def follow_engine_steps(
    state: ControllerState, telemetry: FleetTelemetry, fresh: NDArray[np.bool_], stale_after_s: float
) -> dict[str, NDArray[np.float64]]:
    """``Steps`` by name, after one telemetry. fresh: bool [B, R], a new scrape arrived."""
    steps, engine = Steps(state.counted_at_s.copy(), state.stepped_at_s.copy()), telemetry.engine
    counted = EngineCounts(
        fresh=fresh,
        span_s=plain(engine.span_s),
        iterations=plain(engine.iterations),
        generated=plain(engine.generation_tokens),
    )
    _note_steps(tuple(steps), tuple(counted), telemetry.now_ms / MS_PER_S, stale_after_s)
    return steps._asdict()


@compiled
def _note_steps(steps, counted, now_s, stale_after_s):
    """Update when the engines' counters were last read and when they last showed a step.

    A gap without readings is no evidence. After a gap longer than ``stale_after_s``, the time without steps
    restarts with the first counts that are known again.
    """
    (counted_at_s, stepped_at_s), counted = borrowed(Steps(*steps)), borrowed(EngineCounts(*counted))
    for b in range(len(now_s)):
        for r in range(counted_at_s.shape[1]):
            iterations, generated = counted.iterations[b, r], counted.generated[b, r]
            known = not (np.isnan(iterations) and np.isnan(generated))
            if not (counted.fresh[b, r] and known):
                continue
            span_s = counted.span_s[b, r]
            began_at_s = now_s[b] - (0.0 if np.isnan(span_s) else span_s)
            if not began_at_s - counted_at_s[b, r] <= stale_after_s:
                no_step = not stepped_at_s[b, r] >= began_at_s  # NaN: never stepped
                stepped_at_s[b, r] = began_at_s if no_step else stepped_at_s[b, r]
            if iterations > 0.0 or generated > 0.0:
                stepped_at_s[b, r] = now_s[b]
            counted_at_s[b, r] = now_s[b]
