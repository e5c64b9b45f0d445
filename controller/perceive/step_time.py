"""The step-time ratio: what engine steps took over what the certified model says of their batches.

It is a replica's own clock: it depends on no load, no queue and no peer, so a slow zone, a slow build and a
slow replica stand out alike. Everything comes from what a server counts between two scrapes. Seconds that
tokens waited for their forerunners over seconds that passed are the sequences that decoded, on time average
(Little's law), and with the prompts prefilled meanwhile they say which batches ran.

Unknown, and so neither bad nor good: no new scrape, a first scrape after a restart, counters that are
missing, not finite or went backwards, too few tokens to divide by, and scrapes with preemptions, in which a
token waited for blocks and not for the kernel.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.steady_state import EngineModel
from contracts.telemetry import EngineCounters, FleetTelemetry, Source
from controller.detect.clauses import clock_clauses
from controller.options import ControllerSetup
from controller.state import ControllerState

Floats = NDArray[np.float64]

#: Tokens with a forerunner that a scrape needs: the mean of fewer is that of a few batches.
LEAST_TOKENS = 20.0
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
    if engine is None or not setup.own_clocks:
        return np.full(telemetry.running.shape, np.nan)
    request = mean_request(state.request_tokens, engine, setup.options.capacity.prior_requests)
    found = step_time_ratio(telemetry.engine, engine, setup.layout.replica_kernel, request)
    return np.ascontiguousarray(found)


def step_time_ratio(
    counted: EngineCounters, model: EngineModel, owner: NDArray[np.int64], request: Floats
) -> Floats:
    """Measured over certified step time, [B, R]; NaN: unknown.

    owner: int64 [R], kernel of each replica. request: float64 [B, 2], prompt and output tokens of the mean
    request of each fleet.
    """
    with np.errstate(all="ignore"):
        certified_s = _certified_s(counted, model, owner, request)
        ratio = counted.inter_token_s / certified_s
    return np.where(_usable(counted) & np.isfinite(ratio) & (ratio > 0.0), ratio, np.nan)


def mean_request(tokens: Floats, model: EngineModel, worth: float) -> Floats:
    """float64 [B, 2]: prompt and output tokens of the mean request.

    tokens: float64 [B, 4], ``ControllerState.request_tokens``; worth: requests that the declared ones count
    for.
    """
    declared = np.array([model.demand.prompt_tokens, model.demand.output_tokens])
    return np.asarray((worth * declared + tokens[:, 1::2]) / (worth + tokens[:, 0::2]))


def _certified_s(
    counted: EngineCounters, model: EngineModel, owner: NDArray[np.int64], request: Floats
) -> Floats:
    """What the tokens of a scrape should have waited for their forerunners together, [B, R].

    A token sees as many others beside itself as decode on average, and so does a prompt that is prefilled.
    """
    base, prefill, decode, context = np.moveaxis(model.step_s[owner], -1, 0)
    decoding = counted.inter_token_s / counted.span_s
    batch = np.clip(decoding + 1.0, 1.0, np.maximum(model.sequences[owner], 1.0))
    each_s = decode + context * (request[:, :1] + request[:, 1:] / 2.0)
    seen = counted.prompt_tokens * decoding / counted.inter_tokens
    return np.asarray((base + prefill * seen + each_s * batch) * counted.inter_tokens)


def _usable(counted: EngineCounters) -> NDArray[np.bool_]:
    """bool [B, R]: every counter that is read is known and went forwards, and there are tokens enough."""
    calm = ~(counted.preemptions != 0.0) | np.isnan(counted.preemptions)
    forwards = (counted.inter_token_s > 0.0) & (counted.prompt_tokens >= 0.0) & (counted.span_s > 0.0)
    known = np.isfinite(counted.span_s) & (counted.inter_tokens >= LEAST_TOKENS)
    return np.asarray(calm & forwards & known)
