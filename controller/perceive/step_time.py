"""Step-time ratio: the measured time of engine steps over the certified time of the same batches.

The ratio is a replica's own clock. It depends on no load, queue or peer, so a slow zone, a slow build and a
slow replica are all visible in it. It is computed from what a server counts between two scrapes. The sum of
inter-token times over the elapsed time is the time average of decoding sequences (Little's law). Together
with the prompts prefilled in that time it gives the batches that ran.

With bursty requests, a token sees more than this time average: more sequences decode beside it, and more
prompts are prefilled while more tokens wait. The count of engine steps gives the mean batch of the steps that
ran, which idle time does not dilute. No counter shows how many tokens waited for prompts. So the certified
time counts prompts twice, and a scrape in which prompts may take more than three quarters of the time gives
no ratio.

The ratio is unknown, so neither good nor bad, in these cases: no new scrape; the first scrape after a
restart; counters that are missing, not finite or decreasing; too few tokens; preemptions, because tokens then
wait for KV blocks and not for the kernel; and mostly prompts, because tokens then wait for the prefill of
others.
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

#: Least tokens with a predecessor in a scrape; the mean over fewer is that of only a few batches.
LEAST_TOKENS = 20.0
#: Tokens that wait for a prompt, over the number that would if prompts came evenly over time.
PROMPT_CROWD = 2.0
#: Largest share of the certified time that prompts may have, before ``PROMPT_CROWD`` is applied.
MOST_PROMPT_RATIO = 0.75
#: Result where no clause reads step times.
_NO_STEP_TIMES: Floats = np.empty((0, 0))


def of_gauges(source: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool [C]: clauses for which every fresh scrape of a replica is one observation."""
    gauges = (source >= Source.FINGERPRINT) & (source <= Source.KV_USED)
    return np.asarray(gauges | (source == Source.STEP_TIME))


def observed_step_times(state: ControllerState, telemetry: FleetTelemetry, setup: ControllerSetup) -> Floats:
    """Step-time ratios for the clauses on step times, [B, R]; empty (B = 0) without such a clause."""
    engine = setup.fleet.engine
    if not clock_clauses(setup.contract).size:
        return _NO_STEP_TIMES
    if engine is None or setup.own_clocks == "off":
        return np.full(telemetry.running.shape, np.nan)
    request = _request_of(state, engine, setup)
    return step_time_ratio(telemetry.engine, engine, setup.layout.replica_kernel, request)


def observed_busy_s(state: ControllerState, telemetry: FleetTelemetry, setup: ControllerSetup) -> Floats:
    """``least_busy_s`` of this tick's scrapes, [B, R]; NaN where no step times are certified."""
    engine = setup.fleet.engine
    if engine is None:
        return np.full(telemetry.running.shape, np.nan)
    request = _request_of(state, engine, setup)
    return least_busy_s(telemetry.engine, engine, setup.layout.replica_kernel, request)


def _request_of(state: ControllerState, engine: EngineModel, setup: ControllerSetup) -> Floats:
    """``mean_request`` of each fleet by what is known so far, [B, 2]."""
    return mean_request(state.request_tokens, engine, setup.options.capacity.prior_requests)


def step_time_ratio(
    counted: EngineCounters, model: EngineModel, owner: NDArray[np.int64], request: Floats
) -> Floats:
    """Measured over certified step time, [B, R]; NaN: unknown.

    owner: int64 [R], kernel of each replica. request: float64 [B, 2], prompt and output tokens of the mean
    request of each fleet.
    """
    plain, ratios = np.ascontiguousarray, np.full(counted.span_s.shape, np.nan)
    scrapes = _Scrapes(
        span_s=plain(counted.span_s),
        inter_token_s=plain(counted.inter_token_s),
        inter_tokens=plain(counted.inter_tokens),
        prompt_tokens=plain(counted.prompt_tokens),
        iterations=plain(counted.iterations),
        preemptions=plain(counted.preemptions),
    )
    _find_ratios(ratios, tuple(scrapes), plain(model.step_s), model.sequences, owner, request)
    return ratios


def mean_request(tokens: Floats, model: EngineModel, worth: float) -> Floats:
    """float64 [B, 2]: prompt and output tokens of the mean request.

    tokens: float64 [B, 4], ``ControllerState.request_tokens``; worth: weight of the declared means, in
    requests.
    """
    declared = np.array([model.demand.prompt_tokens, model.demand.output_tokens])
    return np.asarray((worth * declared + tokens[:, 1::2]) / (worth + tokens[:, 0::2]))


def least_busy_s(
    counted: EngineCounters, model: EngineModel, owner: NDArray[np.int64], request: Floats
) -> Floats:
    """Least time that the counted steps took, float64 [B, R] in s; NaN: unknown.

    As certified, less two standard deviations of the true time. owner, request: as in ``step_time_ratio``.
    """
    step, context = model.step_s[owner], request[:, :1] + request[:, 1:] / 2.0
    of_tokens = (
        step[:, 1] * counted.prompt_tokens + (step[:, 2] + step[:, 3] * context) * counted.generation_tokens
    )
    return np.asarray(np.exp(-2.0 * model.spread) * (step[:, 0] * counted.iterations + of_tokens))


class _Scrapes(NamedTuple):
    """Engine counts between two scrapes; see ``EngineCounters``."""

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
    """Certified sum of inter-token times of a scrape, in s; NaN: prompts may have taken too much of the time.

    A token, like a prompt that is prefilled, shares its step with as many other sequences as decode on time
    average, or in the mean step that ran. tokens: mean tokens that a request holds in the KV cache while it
    decodes.
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
    """Whether all counters are known and non-decreasing, and there are enough tokens and no preemptions."""
    preempted = scrapes.preemptions[b, r]
    no_preemption = preempted == 0.0 or np.isnan(preempted)
    forwards = scrapes.inter_token_s[b, r] > 0.0 and scrapes.prompt_tokens[b, r] >= 0.0
    known = scrapes.span_s[b, r] > 0.0 and np.isfinite(scrapes.span_s[b, r])
    known = known and 1.0 <= scrapes.iterations[b, r] < np.inf
    return no_preemption and forwards and known and scrapes.inter_tokens[b, r] >= LEAST_TOKENS
