"""The step-time ratio: what engine steps took over what the certified model says of their batches.

It is a replica's own clock: it depends on no load, no queue and no peer, so a slow zone, a slow build and a
slow replica stand out alike. Everything comes from what a server counts between two scrapes. Seconds that
tokens waited for their forerunners over seconds that passed are the sequences that decoded, on time average
(Little's law), and with the prompts prefilled meanwhile they say which batches ran.

A mean over time is not what a token meets where requests come in bursts: more decode beside it than on
average, and more prompts are prefilled while more wait. Steps that were counted give the batch of a step that
ran at all, which no idle time dilutes; of what waited for prompts no counter tells, so the certified time
takes twice as much, and a scrape that may owe more than three quarters of its time to prompts says nothing.

Unknown, and so neither bad nor good: no new scrape, a first scrape after a restart, counters that are
missing, not finite or went backwards, too few tokens to divide by, scrapes with preemptions, in which a token
waited for blocks and not for the kernel, and scrapes of prompts, in which it waited for somebody's first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.steady_state import EngineModel
from contracts.jit import borrowed, compiled
from contracts.telemetry import EngineCounters, FleetTelemetry, Source
from controller.detect.clauses import clock_clauses
from controller.options import ControllerSetup
from controller.state import ControllerState

Floats = NDArray[np.float64]

#: Tokens with a forerunner that a scrape needs: the mean of fewer is that of a few batches.
LEAST_TOKENS = 20.0
#: Tokens that wait for a prompt, over those that would where prompts came at any time alike.
PROMPT_CROWD = 2.0
#: Largest share of the certified time that prompts may have, before the crowd is counted.
MOST_PROMPT_RATIO = 0.75
_NOBODY_ASKS: Floats = np.empty((0, 0))


def of_gauges(source: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool [C]: clauses that every fresh scrape of a replica gives one observation to."""
    shown = (source >= Source.FINGERPRINT) & (source <= Source.KV_USED)
    return np.asarray(shown | (source == Source.STEP_TIME))


def observed_step_times(state: ControllerState, telemetry: FleetTelemetry, setup: ControllerSetup) -> Floats:
    """What the clauses on step times read, [B, R]; without a fleet where there are none."""
    engine = setup.fleet.engine
    if not clock_clauses(setup.contract).size:
        return _NOBODY_ASKS
    if engine is None or setup.own_clocks == "off":
        return np.full(telemetry.running.shape, np.nan)
    request = mean_request(state.request_tokens, engine, setup.options.capacity.prior_requests)
    return step_time_ratio(telemetry.engine, engine, setup.layout.replica_kernel, request)


def step_time_ratio(
    counted: EngineCounters, model: EngineModel, owner: NDArray[np.int64], request: Floats
) -> Floats:
    """Measured over certified step time, [B, R]; NaN: unknown.

    owner: int64 [R], kernel of each replica. request: float64 [B, 2], prompt and output tokens of the mean
    request of each fleet.
    """
    plain, found = np.ascontiguousarray, np.full(counted.span_s.shape, np.nan)
    scrapes = _Scrapes(
        span_s=plain(counted.span_s),
        inter_token_s=plain(counted.inter_token_s),
        inter_tokens=plain(counted.inter_tokens),
        prompt_tokens=plain(counted.prompt_tokens),
        iterations=plain(counted.iterations),
        preemptions=plain(counted.preemptions),
    )
    _find_ratios(found, tuple(scrapes), plain(model.step_s), model.sequences, owner, request)
    return found


def mean_request(tokens: Floats, model: EngineModel, worth: float) -> Floats:
    """float64 [B, 2]: prompt and output tokens of the mean request.

    tokens: float64 [B, 4], ``ControllerState.request_tokens``; worth: requests that the declared ones count
    for.
    """
    declared = np.array([model.demand.prompt_tokens, model.demand.output_tokens])
    return np.asarray((worth * declared + tokens[:, 1::2]) / (worth + tokens[:, 0::2]))


class _Scrapes(NamedTuple):
    """What engines counted between two scrapes; see ``EngineCounters``."""

    span_s: Floats  #: [B, R]
    inter_token_s: Floats  #: [B, R]
    inter_tokens: Floats  #: [B, R]
    prompt_tokens: Floats  #: [B, R]
    iterations: Floats  #: [B, R]
    preemptions: Floats  #: [B, R]


@compiled
def _find_ratios(found, scrapes, step_s, sequences, owner, request):
    """Fill in ``step_time_ratio`` [B, R] where it is known. step_s: [K, 4], sequences: [K]."""
    scrapes = borrowed(_Scrapes(*scrapes))
    for b in range(found.shape[0]):
        tokens = request[b, 0] + request[b, 1] / 2.0
        for r in range(len(owner)):
            if _is_usable(scrapes, b, r):
                k = owner[r]
                certified_s = _certified_s(scrapes, step_s[k], sequences[k], tokens, b, r)
                ratio = scrapes.inter_token_s[b, r] / certified_s
                if np.isfinite(ratio) and ratio > 0.0:
                    found[b, r] = ratio


@compiled
def _certified_s(scrapes, step_s, sequences, tokens, b, r):
    """What the tokens of a scrape should have waited for their forerunners together.

    A token sees as many others beside itself as decode on average, or in the mean step that ran, and so does
    a prompt that is prefilled. tokens: of the mean request, that are held on average while it decodes. NaN
    where prompts may have had too much of the time.
    """
    inter_tokens = scrapes.inter_tokens[b, r]
    decoding = scrapes.inter_token_s[b, r] / scrapes.span_s[b, r]
    mean_batch = inter_tokens / scrapes.iterations[b, r]
    most = max(sequences, 1.0)
    batch = min(max(decoding + 1.0, mean_batch), most)
    decode_s = (step_s[0] + (step_s[2] + step_s[3] * tokens) * batch) * inter_tokens
    prompt_s = step_s[1] * scrapes.prompt_tokens[b, r] * min(max(decoding, mean_batch), most)
    if prompt_s > MOST_PROMPT_RATIO * (decode_s + prompt_s):
        return np.nan
    return decode_s + PROMPT_CROWD * prompt_s


@compiled
def _is_usable(scrapes, b, r):
    """Whether every counter that is read is known and went forwards, and there are tokens enough."""
    preempted = scrapes.preemptions[b, r]
    calm = preempted == 0.0 or np.isnan(preempted)
    forwards = scrapes.inter_token_s[b, r] > 0.0 and scrapes.prompt_tokens[b, r] >= 0.0
    known = scrapes.span_s[b, r] > 0.0 and np.isfinite(scrapes.span_s[b, r])
    known = known and 1.0 <= scrapes.iterations[b, r] < np.inf
    return calm and forwards and known and scrapes.inter_tokens[b, r] >= LEAST_TOKENS
