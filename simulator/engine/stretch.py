"""Stretches of a replica's time: consecutive steps without any event between them.

While a replica only decodes, its steps last ``d, d + g, d + 2g ...`` (every sequence grows by one token per
step), so ``m`` steps last ``m d + g m (m - 1) / 2`` and a whole stretch is one jump.
"""

from __future__ import annotations

import math

import numpy as np

from contracts.jit import compiled
from simulator.engine.layout import DECODE, IDLE, STALL
from simulator.engine.memory import Record


@compiled(nogil=True)
def stretch_s(steps: int, first_step_s: float, growth_s: float) -> float:
    """Duration of this many steps, in s."""
    return steps * first_step_s + growth_s * steps * (steps - 1) * 0.5


@compiled(nogil=True)
def steps_until(elapsed_s: float, first_step_s: float, growth_s: float) -> int:
    """Smallest number of steps >= 1 that last at least ``elapsed_s``."""
    if growth_s <= 0.0:
        steps = int(math.ceil(elapsed_s / first_step_s))
    else:
        b = first_step_s - growth_s * 0.5
        steps = int(math.ceil((math.sqrt(b * b + 2.0 * growth_s * elapsed_s) - b) / growth_s))
    if steps < 1:
        steps = 1
    while steps > 1 and stretch_s(steps - 1, first_step_s, growth_s) >= elapsed_s:
        steps -= 1
    while stretch_s(steps, first_step_s, growth_s) < elapsed_s:
        steps += 1
    return steps


@compiled(nogil=True)
def cut(replica: Record, at_s: float) -> None:
    """End the decode stretch under way at its first step boundary at or after ``at_s``."""
    if replica.kind == DECODE and replica.steps > 1 and at_s < replica.ends_at_s:
        steps = steps_until(at_s - replica.began_at_s, replica.first_step_s, replica.growth_s)
        if steps < replica.steps:
            replica.steps = steps
            replica.ends_at_s = replica.began_at_s + stretch_s(steps, replica.first_step_s, replica.growth_s)


@compiled(nogil=True)
def steps_done(replica: Record, now_s: float) -> int:
    """Steps of the decode stretch under way that have ended at ``now_s``."""
    if replica.kind != DECODE or replica.steps <= 1 or now_s <= replica.began_at_s:
        return 0
    steps = steps_until(now_s - replica.began_at_s, replica.first_step_s, replica.growth_s)
    ends_at_s = replica.began_at_s + stretch_s(steps, replica.first_step_s, replica.growth_s)
    return steps if ends_at_s <= now_s else steps - 1


@compiled(nogil=True)
def stall(replica: Record) -> None:
    """No step is possible: idle, or waiting for the next deadline."""
    replica.steps = 0
    if replica.outstanding == 0:
        replica.kind = IDLE
        replica.ends_at_s = np.inf
    else:
        replica.kind = STALL
        replica.ends_at_s = replica.deadline_at_s
