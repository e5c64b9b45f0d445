"""Compiled loop of the capacity estimate. Fleets are independent; replicas are processed in order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.carried import Objectives, Replica, as_if_steps_lasted, carried_rps, request_of
from contracts.compiled.steady_state import sequence_limit
from contracts.jit import borrowed, compiled
from controller.perceive.queue_pass import filled, insert, keep_proven, limits_in_time, middle_of, too_many

#: Columns of ``Learned.tokens``: requests and their prompt tokens, requests and their output tokens.
PROMPTS, PROMPT_TOKENS, OUTPUTS, OUTPUT_TOKENS = range(4)
#: Columns of ``Learned.speed``: seconds predicted, seconds measured, number of scrapes behind them.
PREDICTED_S, MEASURED_S, SCRAPES = range(3)

#: Standard deviations of the tokens that running requests hold, where each spreads as widely as its mean.
#: KV blocks in use beyond that belong to no request; chance exceeds it in one scrape of a thousand.
HELD_SIGMAS = 3.0

#: Best estimate before anything was counted: no traffic is moved or shed for a capacity never measured.
UNBOUNDED_RPS = 1e9


class Learned(NamedTuple):
    """Learned statistics of traffic and engines, and capacities; written to."""

    tokens: NDArray[np.float64]  # [B, 4], sums over the newest requests of the fleet
    speed: NDArray[np.float64]  # [B, R, 3], sums over the newest scrapes of a replica
    replica_rps: NDArray[np.float64]  # [B, K], filled: capacity of one replica, best estimate
    least_rps: NDArray[np.float64]  # [B, K], filled: lower limit of that capacity
    healthy_rps: NDArray[np.float64]  # [B, K], filled: its capacity at certified or usual speed
    too_many: NDArray[np.float64]  # [B, K], filled: requests in a replica beyond those it answers in time
    surely_too_many: NDArray[np.float64]  # [B, K], filled: the same if no answer were longer than their mean
    filled_ratio: NDArray[np.float64]  # [B, K], filled: requests in the fullest replica over a batch in time


class CarriedCounts(NamedTuple):
    """Counts of engines and gateway; NaN: unknown."""

    fresh: NDArray[np.bool_]  # [B, R], a new scrape arrived
    span_s: NDArray[np.float64]  # [B, R], between the two scrapes
    prompt_tokens: NDArray[np.float64]  # [B, R]
    generation_tokens: NDArray[np.float64]  # [B, R]
    inter_token_s: NDArray[np.float64]  # [B, R]
    inter_tokens: NDArray[np.float64]  # [B, R]
    admitted: NDArray[np.float64]  # [B, R], requests
    finished: NDArray[np.float64]  # [B, R], requests
    running: NDArray[np.float64]  # [B, R], requests
    waiting: NDArray[np.float64]  # [B, R], requests
    kv_used_ratio: NDArray[np.float64]  # [B, R], 0..1
    answered_rps: NDArray[np.float64]  # [B, R], smoothed
    serving: NDArray[np.bool_]  # [B, R], ready and in rotation
    early: NDArray[np.bool_]  # [B], shortly after the start: first counters may still arrive
    usual: NDArray[np.float64]  # [B, K], log of usual over certified step time of a kernel
    forget: NDArray[np.float64]  # [B], factor by which the speed statistics decay in this tick


class Certified(NamedTuple):
    """Certified and declared values, with the weight of each as a prior."""

    step_s: NDArray[np.float64]  # [K, 4]
    sequences: NDArray[np.float64]  # [K]
    kv_tokens: NDArray[np.float64]  # [K]
    objectives: Objectives  # tightest of any slice
    step_tokens: float  # most tokens in one step
    longest_prompt: float  # longest admitted, in tokens
    longest_output: float
    prompt_tokens: float  # declared mean
    output_tokens: float
    spread: float  # prior standard deviation of the log of true over certified step time
    noise: float  # the same of one scrape's ratio
    few: float  # mean of decoding sequences at which a scrape counts half
    floor: float  # standard deviation that remains with any number of scrapes
    prior_requests: float  # weight of the declared means, in requests
    memory_requests: float
    memory_scrapes: float
    quantile: float  # of the standard normal, for the lower limit


@compiled
def learn(learned, counted, certified, owner):
    """Add new counts, and update the capacity of one replica of each kernel (``owner`` [R])."""
    learned, counted = borrowed((Learned(*learned), CarriedCounts(*counted)))
    known = borrowed(Certified(*certified))
    request, ratios = np.zeros(3), np.zeros(len(owner))
    for b in range(learned.tokens.shape[0]):
        for r in range(len(owner)):
            for i in range(3):
                learned.speed[b, r, i] *= counted.forget[b]
            if counted.fresh[b, r]:
                _count_tokens(learned, counted, known, b, r)
                _count_steps(learned, counted, known, request, b, r, owner[r])
        _describe(request, learned, known, b)
        longest = known.longest_prompt, known.longest_output
        observed = request_of(request[0], request[1], longest[0], longest[1]), request[2]
        for k in range(learned.replica_rps.shape[1]):
            slow, scrapes = _slowness(ratios, learned, owner, b, k)
            slow = _estimate(learned, known, observed, b, k, (counted.usual[b, k], slow, scrapes))
            pace = slow, learned.replica_rps[b, k]
            supposed, certain = limits_in_time(known, observed[0], pace, k)
            learned.too_many[b, k] = too_many(ratios, counted, supposed, owner, b, k)
            learned.surely_too_many[b, k] = too_many(ratios, counted, certain, owner, b, k)
            learned.filled_ratio[b, k] = filled(counted, supposed, owner, b, k)
            _subtract_leaked(learned, counted, known, observed[0], owner, b, k)
            keep_proven(learned, counted, owner, b, k)
            if counted.early[b] and learned.tokens[b, PROMPTS] < known.prior_requests:
                learned.replica_rps[b, k] = UNBOUNDED_RPS


@compiled(inline="always")
def _count_tokens(learned, counted, known, b, r):
    """Add the tokens of the newest requests, and drop the weight of as many old ones.

    A request that began or ended between two scrapes generated half of its tokens there on average. Tokens
    divided by ended requests alone would be too many while a batch grows.
    """
    tokens = learned.tokens[b]
    prompts, prompt_tokens = counted.admitted[b, r], counted.prompt_tokens[b, r]
    output_tokens = counted.generation_tokens[b, r]
    outputs = (prompts + counted.finished[b, r]) / 2.0
    if prompts > 0.0 and prompt_tokens > 0.0:
        keep = max(0.0, 1.0 - prompts / known.memory_requests)
        tokens[PROMPTS] = keep * tokens[PROMPTS] + prompts
        tokens[PROMPT_TOKENS] = keep * tokens[PROMPT_TOKENS] + prompt_tokens
    if outputs > 0.0 and output_tokens > 0.0:
        keep = max(0.0, 1.0 - outputs / known.memory_requests)
        tokens[OUTPUTS] = keep * tokens[OUTPUTS] + outputs
        tokens[OUTPUT_TOKENS] = keep * tokens[OUTPUT_TOKENS] + output_tokens


@compiled(inline="always")
def _describe(request, learned, known, b):
    """The mean request: prompt tokens, output tokens, and the variance of the log of their means.

    No server exports the spread of tokens over requests; the standard deviation is taken as the mean.
    """
    worth, tokens = known.prior_requests, learned.tokens[b]
    request[0] = (worth * known.prompt_tokens + tokens[PROMPT_TOKENS]) / (worth + tokens[PROMPTS])
    request[1] = (worth * known.output_tokens + tokens[OUTPUT_TOKENS]) / (worth + tokens[OUTPUTS])
    request[2] = 1.0 / (worth + min(tokens[PROMPTS], tokens[OUTPUTS]))


@compiled(inline="always")
def _count_steps(learned, counted, known, request, b, r, k):
    """Add the measured and the predicted step time of a scrape to the speed statistics.

    The sum of inter-token times over the elapsed time is the time average of decoding sequences (Little's
    law). A token, like a prompt that is prefilled, shares its step with as many other sequences, because
    random arrivals see time averages; the batch limit bounds their number.
    """
    inter_tokens, waited_s, span_s = (
        counted.inter_tokens[b, r],
        counted.inter_token_s[b, r],
        counted.span_s[b, r],
    )
    if span_s > 0.0 and inter_tokens > 0.0 and waited_s > 0.0 and counted.prompt_tokens[b, r] >= 0.0:
        _describe(request, learned, known, b)
        decoding, step = waited_s / span_s, known.step_s[k]
        batch = max(min(decoding + 1.0, known.sequences[k]), 1.0)
        each_s = step[2] + step[3] * (request[0] + request[1] / 2.0)
        prefilled = counted.prompt_tokens[b, r] * decoding / inter_tokens
        keep, speed = 1.0 - 1.0 / known.memory_scrapes, learned.speed[b, r]
        predicted_s = (step[0] + step[1] * prefilled + each_s * batch) * inter_tokens
        speed[PREDICTED_S] = keep * speed[PREDICTED_S] + predicted_s
        speed[MEASURED_S] = keep * speed[MEASURED_S] + waited_s
        speed[SCRAPES] = keep * speed[SCRAPES] + decoding / (decoding + known.few)


@compiled(inline="always")
def _slowness(ratios, learned, owner, b, k):
    """Log of measured over certified step time of a kernel's median replica, and scrapes behind it.

    Of two replicas the faster one is taken. One slow replica among its peers is a matter of quarantine, not
    of the kernel's capacity.
    """
    count, scrapes = 0, 0.0
    for r in range(len(owner)):
        predicted_s, measured_s = learned.speed[b, r, PREDICTED_S], learned.speed[b, r, MEASURED_S]
        if owner[r] == k and predicted_s > 0.0 and measured_s > 0.0:
            insert(ratios, count, measured_s / predicted_s)
            count += 1
            scrapes += learned.speed[b, r, SCRAPES]
    return (np.log(middle_of(ratios, count)) if count > 0 else 0.0), scrapes


@compiled(inline="always")
def _estimate(learned, known, observed, b, k, slowness):
    """Fill the capacity, its lower limit and that at usual speed; returns the log of the estimated slowness.

    observed: the mean request and its variance. slowness: log of the usual one, log of the newest one, and
    the scrapes behind the latter.
    """
    (request, variance), (usual, slow, scrapes) = observed, slowness
    prior, data = 1.0 / known.spread**2, scrapes / known.noise**2
    slow = usual + (slow - usual) * (data / (prior + data))
    reach = known.quantile * np.sqrt(1.0 / (prior + data) + known.floor**2 + variance)
    learned.replica_rps[b, k] = _at_speed_rps(known, request, k, slow, 0.0)
    learned.least_rps[b, k] = _at_speed_rps(known, request, k, slow + reach, 0.0)
    learned.healthy_rps[b, k] = _at_speed_rps(known, request, k, usual, 0.0)
    return slow


@compiled(inline="always")
def _subtract_leaked(learned, counted, known, request, owner, b, k):
    """Reduce both estimates by the mean capacity that replicas in rotation lose to leaked KV blocks.

    Leaked blocks are blocks in use beyond those that the running requests explain. ``healthy_rps`` is not
    reduced, so leaked blocks excuse no late answer.
    """
    tokens, kv_tokens = request.prompt_tokens + request.output_tokens, known.kv_tokens[k]
    serving, lost = 0, 0.0
    for r in range(len(owner)):
        if owner[r] == k and counted.serving[b, r]:
            serving += 1
            running = counted.running[b, r]
            mine = tokens * (running + HELD_SIGMAS * np.sqrt(max(running, 1.0)))
            held = counted.kv_used_ratio[b, r] * kv_tokens - mine
            if held > 0.0:
                left_rps = _at_speed_rps(known, request, k, counted.usual[b, k], held)
                lost += 1.0 - min(left_rps / learned.healthy_rps[b, k], 1.0)
    if lost > 0.0:
        learned.replica_rps[b, k] *= 1.0 - lost / serving
        learned.least_rps[b, k] *= 1.0 - lost / serving


@compiled(inline="always")
def _at_speed_rps(known, request, k, slow, held_tokens):
    """Capacity of a replica with steps ``exp(slow)`` times as long as certified, in requests per second.

    Its KV cache has ``held_tokens`` tokens less than certified.
    """
    left_tokens = max(known.kv_tokens[k] - held_tokens, 0.0)
    fits = sequence_limit(request.prompt_tokens, request.output_tokens, known.sequences[k], left_tokens)
    factor = np.exp(slow)
    scaled = as_if_steps_lasted(known.objectives, factor)
    return carried_rps(known.step_s[k], request, Replica(fits, known.step_tokens), scaled) / factor
