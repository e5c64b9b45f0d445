"""Compiled: the rate at which requests keep every objective, but for the 5 % that contracts tolerate late.

What is known of the lengths of requests are their means, because engines export sums. Their spread is taken
as that of real traffic, log-normal with ``SIGMA`` and cut at the longest request that is let in. Four limits;
what a replica carries is the least of them:

- *Steady state*: the largest batch that fits scheduler and KV cache and whose step keeps the objective
  between two tokens, and the whole answer's for an answer of the 95 % quantile; with a headroom, because
  batches vary.
- *Gaps of short answers*: an answer of a few tokens does not average over the prompts that are prefilled
  meanwhile. In the time that its tokens are given, prompts arrive as a compound Poisson process, whose sum
  is taken as normal; but no step holds more prompt tokens than the scheduler's budget.
- *First token*: a prompt waits for those before it. One server, Poisson arrivals, first come first served
  (M/G/1): by Pollaczek and Khinchine, a prompt that waits does so for ``m2 / (2 m1 (1 - r))`` on average, m1
  and m2 the moments of its service and r the load; waiting is taken as exponential beyond that, exact for
  M/M/1 and in heavy traffic (Kingman 1961): P(W > t) = r exp(-t (1 - r) 2 m1 / m2). Half of the 5 % may be
  missed by waiting, half by prompts that take too long by themselves, a bound by Bonferroni.
- Every kind of lateness counts only as far as load causes it: shedding does not help a request that is late
  on an idle replica. Where long answers are, batches whose step takes a tenth longer than a lone sequence's
  are in time all the same. Where gaps or first tokens are late already at ``LEAST_LOAD`` of the steady state,
  that load is carried all the same; and never less than ``LEAST_RPS``.

A service is the prefill of a prompt and the rest of one step; all times in seconds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled

#: Share of the steady-state limit that counts as capacity: above it queues grow with every burst.
HEADROOM_RATIO = 0.87
#: Standard deviation of the log of the tokens of a request: 0.7 to 1.0 in published traces.
SIGMA = 0.8
#: Share of the requests that may miss an objective, and quantiles of the standard normal at it and its half.
MISSED = 0.05
_Z, _Z_HALF = 1.6449, 1.9600
#: Mean over answers, median times exp(SIGMA z), of Q(this sqrt(exp(SIGMA z))) is ``MISSED``; Q: normal tail.
GAP_QUANTILE = 1.8767
#: Rate that even a kernel that keeps no objective is taken to carry, so that shares of it exist; requests/s.
LEAST_RPS = 1e-3
#: Share of the steady-state rate below which less load makes answers hardly earlier: at half of it, a prompt
#: waits no longer on average than another takes (Pollaczek and Khinchine, log-normal services), mostly less.
LEAST_LOAD = 0.5
#: Share of the first token's time that a request may wait before a full batch.
WAIT_RATIO = 0.25
#: A batch up to this many times the step of a lone sequence makes whole answers hardly later.
HARDLY_LATER = 1.1
#: Halvings of the rate at which first tokens are in time: to a thousandth.
_HALVINGS = 10


class Request(NamedTuple):
    """Tokens of requests: means, E[prompt²], prompt and answer of the quantiles, median answer."""

    prompt_tokens: float
    output_tokens: float
    prompt_square: float
    most_prompt: float
    most_output: float
    middle_output: float


class Objectives(NamedTuple):
    """The tightest of any slice, seconds; inf: there is none."""

    inter_token_s: float
    first_token_s: float
    whole_s: float


@compiled(inline="always")
def as_if_steps_lasted(promised: Objectives, factor: float) -> Objectives:
    """``promised``, scaled so that steps as certified keep it where they last ``factor`` times as long."""
    return Objectives(
        promised.inter_token_s / factor, promised.first_token_s / factor, promised.whole_s / factor
    )


class Replica(NamedTuple):
    """Most sequences at once, and most tokens of one step."""

    sequences: float
    step_tokens: float


@compiled
def request_of(
    prompt_tokens: float, output_tokens: float, longest_prompt: float, longest_output: float
) -> Request:
    """``Request`` of these means, cut at the longest that are let in (inf: at none)."""
    middle = math.exp(-0.5 * SIGMA * SIGMA)
    prompt = prompt_tokens * middle
    most_prompt = min(prompt * math.exp(_Z_HALF * SIGMA), max(longest_prompt, prompt_tokens))
    output = output_tokens * middle
    most_output = min(output * math.exp(_Z * SIGMA), max(longest_output, output_tokens))
    square = prompt_tokens * prompt_tokens * math.exp(SIGMA * SIGMA)
    if longest_prompt < 100.0 * prompt_tokens:
        cut = math.log(longest_prompt / prompt) / SIGMA
        square *= 0.5 * math.erfc((2.0 * SIGMA - cut) / math.sqrt(2.0))
        square += longest_prompt * longest_prompt * 0.5 * math.erfc(cut / math.sqrt(2.0))
        square = max(square, prompt_tokens * prompt_tokens)
    return Request(prompt_tokens, output_tokens, square, most_prompt, most_output, max(output, 1.0))


@compiled
def of_mean_answers(request: Request) -> Request:
    """``request`` with all answers as long as their mean."""
    return Request(
        request.prompt_tokens,
        request.output_tokens,
        request.prompt_square,
        request.most_prompt,
        request.output_tokens,
        request.output_tokens,
    )


@compiled
def carried_rps(
    step: NDArray[np.float64], request: Request, replica: Replica, objectives: Objectives
) -> float:
    """Requests per second of a replica whose steps have the coefficients ``step`` [4]."""
    rate_rps = HEADROOM_RATIO * steady_rps(step, request, replica, objectives)
    least_rps = max(LEAST_LOAD * rate_rps, LEAST_RPS)
    rate_rps = min(rate_rps, _gap_rps(step, request, replica, objectives.inter_token_s))
    if _first_in_time(rate_rps, step, request, objectives.first_token_s):
        return max(rate_rps, least_rps)
    low, high = 0.0, rate_rps
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _first_in_time(middle, step, request, objectives.first_token_s):
            low = middle
        else:
            high = middle
    return max(low, least_rps)


@compiled
def steady_rps(
    step: NDArray[np.float64], request: Request, replica: Replica, objectives: Objectives
) -> float:
    """The steady-state limit: the rate of the largest batch in time, which has at least one sequence."""
    batch = batch_in_time(step, request, replica, objectives)
    rate_rps: float = batch / (request.output_tokens * (step[0] + batch * _work_s(step, request)))
    return rate_rps


@compiled
def batch_in_time(
    step: NDArray[np.float64], request: Request, replica: Replica, objectives: Objectives
) -> float:
    """Most sequences that one replica holds whose step and answer meet their objectives, at least one."""
    batch: float = min(replica.sequences, most_in_time(step, request, objectives))
    return batch


@compiled
def most_in_time(step: NDArray[np.float64], request: Request, objectives: Objectives) -> float:
    """Most sequences at once whose step and answer come in time, were there room for all; at least one, and
    as many as make an answer hardly later than it is alone.
    """
    work_s = _work_s(step, request)
    left_s = objectives.whole_s - step[0] - step[1] * request.prompt_tokens
    each_s = max(left_s / request.most_output, HARDLY_LATER * (step[0] + work_s))
    each_s = min(objectives.inter_token_s, each_s)
    most: float = math.inf if work_s <= 0.0 else max(1.0, (each_s - step[0]) / work_s)
    return most


@compiled
def patience_s(
    step: NDArray[np.float64], request: Request, replica: Replica, objectives: Objectives
) -> float:
    """How long a request may wait before a full batch: a quarter of the first token's time, because its
    prompt has to be read as well and a queue that stands varies, and no longer than a long answer in that
    batch leaves of the whole answer's; never below 0.
    """
    full_s = step[0] + replica.sequences * _work_s(step, request)
    left_s = objectives.whole_s - step[0] - step[1] * request.prompt_tokens - request.most_output * full_s
    patience: float = max(min(WAIT_RATIO * objectives.first_token_s, left_s), 0.0)
    return patience


@compiled(inline="always")
def _work_s(step: NDArray[np.float64], request: Request) -> float:
    """Seconds of a step for each sequence in it: its token, and its part of the prompts prefilled."""
    decode_s = step[2] + step[3] * (request.prompt_tokens + request.output_tokens / 2.0)
    work_s: float = step[1] * request.prompt_tokens / request.output_tokens + decode_s
    return work_s


@compiled(inline="always")
def _gap_rps(step: NDArray[np.float64], request: Request, replica: Replica, gap_s: float) -> float:
    """Rate at which short answers keep ``gap_s`` between tokens: prompts as they come, or full steps."""
    spare_s = gap_s - step[0]
    if gap_s == math.inf or spare_s <= 0.0:
        return math.inf if gap_s == math.inf else 0.0
    decode = step[2] + step[3] * (request.prompt_tokens + request.output_tokens / 2.0)
    decode_s = gap_s * request.output_tokens * decode
    mean_s = gap_s * step[1] * request.prompt_tokens + decode_s
    spread_s = GAP_QUANTILE * step[1] * math.sqrt(gap_s * request.prompt_square / request.middle_output)
    if mean_s <= 0.0 or decode_s <= 0.0:
        return math.inf
    root = (math.sqrt(spread_s * spread_s + 4.0 * mean_s * spare_s) - spread_s) / (2.0 * mean_s)
    rate_rps: float = max(root * root, (spare_s - step[1] * replica.step_tokens) / decode_s)
    return rate_rps


@compiled(inline="always")
def _first_in_time(rate_rps: float, step: NDArray[np.float64], request: Request, first_s: float) -> bool:
    """Whether enough of the first tokens arrive within ``first_s`` at ``rate_rps``."""
    if rate_rps <= 0.0 or first_s == math.inf:
        return first_s == math.inf
    decode = step[2] + step[3] * (request.prompt_tokens + request.output_tokens / 2.0)
    prefill_s = step[1] * request.prompt_tokens
    busy = rate_rps * (prefill_s + request.output_tokens * decode)
    if busy >= 1.0:
        return False
    rest_s = step[0] * (1.0 - rate_rps * prefill_s) / (1.0 - busy)  # of a step, without its prompts
    wait_s = max(first_s - step[1] * request.most_prompt - rest_s, 0.0)
    mean_s = prefill_s + rest_s
    load = rate_rps * mean_s
    if load >= 1.0:
        return False
    square = step[1] * step[1] * request.prompt_square + rest_s * (2.0 * prefill_s + rest_s)
    kept: bool = math.log(load) - wait_s * (1.0 - load) * 2.0 * mean_s / square <= math.log(0.5 * MISSED)
    return kept
