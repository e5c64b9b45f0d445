"""Step times as requests feel them through a server: the engine's own, and what serving adds.

Time between two tokens of a stream in steady state is the period of the engine's loop: a constant delay of
every token on its way out does not change it. So what makes tokens come further apart than the engine's steps
holds the loop (waits between steps, cores that API process and engine share), and is added to the step:

    step(n) = (c0 + step overhead) + c1 * prefilled tokens + (c2 + token overhead) * n + c3 * contexts

What a request takes beside that (parsing, tokenising, its way in and out) happens while the engine serves
others: it delays the first token and the whole answer, and carries no capacity away but by the objectives
that it eats into. An API process that is itself the slowest part shows in the time between tokens.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.documents.profile import ServingPath, StepTime
from contracts.units import s_from_ms

NOTHING_ADDED = ServingPath()


def served_step_s(step: StepTime, serving: ServingPath | None = None) -> NDArray[np.float64]:
    """Coefficients of one engine step as its requests feel them, seconds, float64 [4]."""
    added = serving or NOTHING_ADDED
    parts = (
        step.base_ms + added.step_overhead_ms,
        step.per_prefill_token_ms,
        step.per_decode_sequence_ms + added.token_overhead_ms,
        step.per_context_token_ms,
    )
    return np.array([s_from_ms(part) for part in parts])


def request_delay_s(serving: ServingPath | None) -> float:
    """Seconds by which every request's first and last token come later."""
    return s_from_ms((serving or NOTHING_ADDED).request_overhead_ms)
