"""The rate that keeps every objective, and its waiting times against a simulated queue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from contracts.compiled.carried import GAP_QUANTILE, HEADROOM_RATIO, LEAST_LOAD, LEAST_RPS, MISSED, SIGMA
from contracts.compiled.steady_state import Demand, EngineModel, capacity_rps, steady_limits_rps, step_s
from contracts.rng import stream

DEMAND = Demand(prompt_tokens=1155.0, output_tokens=211.0)
LONGEST = Demand(prompt_tokens=4096.0, output_tokens=1024.0)
#: As measured for 16-bit floats on a processor without them: prompts are slow, steps are not.
SLOW_PROMPTS = (1.3e-3, 1e-4, 5e-5, 2e-8)
OBJECTIVES = {"inter_token_s": 0.08, "first_token_s": 2.0, "whole_s": 15.0}


def _engine(step: tuple[float, ...], **more: Any) -> EngineModel:
    unhurried: dict[str, Any] = dict.fromkeys(OBJECTIVES, float("inf"))
    return EngineModel(
        step_s=np.array([step]),
        sequences=np.array([64.0]),
        kv_tokens=np.array([65536.0]),
        demand=DEMAND,
        step_tokens=2048.0,
        longest=LONGEST,
        **(unhurried | more),
    )


def _rps(engine: EngineModel, demand: Demand = DEMAND) -> float:
    return capacity_rps(engine, engine.step_s[0], demand, 0)


def test_without_objectives_only_the_steady_state_limits() -> None:
    """The capacity is that of the largest batch, with headroom."""
    engine = _engine(SLOW_PROMPTS)
    limit = steady_limits_rps(engine.step_s, engine, DEMAND)[0]
    batch = min(64.0, 65536.0 / (DEMAND.prompt_tokens + DEMAND.output_tokens))
    by_hand = batch / (DEMAND.output_tokens * step_s(engine.step_s[0], DEMAND, batch))
    assert limit == pytest.approx(by_hand)
    assert _rps(engine) == pytest.approx(HEADROOM_RATIO * limit)


@given(
    st.tuples(st.floats(1e-4, 1e-2), st.floats(1e-6, 1e-3), st.floats(1e-6, 1e-3), st.floats(1e-9, 1e-6)),
    st.floats(20.0, 4000.0),
    st.floats(5.0, 1000.0),
    st.sampled_from(sorted(OBJECTIVES)),
    st.floats(0.1, 1.0),
)
def test_a_tighter_objective_never_allows_more(
    step: tuple[float, ...], prompt: float, output: float, name: str, factor: float
) -> None:
    """Every tighter limit lowers the rate, none is negative, and all stay within the steady state."""
    demand = Demand(prompt_tokens=prompt, output_tokens=output)
    usual = _engine(step, **OBJECTIVES)
    tighter = _engine(step, **OBJECTIVES | {name: factor * OBJECTIVES[name]})
    most = HEADROOM_RATIO * steady_limits_rps(usual.step_s, usual, demand)[0]
    assert LEAST_RPS <= _rps(tighter, demand) <= _rps(usual, demand) * (1.0 + 1e-2)
    assert _rps(usual, demand) <= max(most, LEAST_RPS) * (1.0 + 1e-9)


@pytest.mark.parametrize("first_s", [2.0, 3.0, 4.0])
def test_first_tokens_are_in_time_in_a_simulated_queue(first_s: float) -> None:
    """At the computed rate 95 % of prompts in a single-server queue (Lindley's recursion) are in time.

    It is a lower bound on the rate; at the steady-state rate they are not in time.
    """
    engine = _engine((1.3e-3, 3.6e-4, 5e-5, 2e-8), first_token_s=first_s)
    unhurried = replace(engine, first_token_s=float("inf"))
    assert LEAST_RPS < _rps(engine) < 0.9 * _rps(unhurried)
    assert _late_ratio(_rps(engine), engine, first_s) <= 1.2 * MISSED
    assert _late_ratio(_rps(unhurried), engine, first_s) > MISSED


@pytest.mark.parametrize("first_s", [0.01, 0.3, 0.6, 1.0])
def test_prompts_that_are_late_alone_leave_half_of_the_load(first_s: float) -> None:
    """Where prompts are late even alone, the limit is on the delay that load adds.

    In a simulated queue that load makes few more late, among those that an empty replica answers in time.
    """
    engine = _engine((1.3e-3, 3.6e-4, 5e-5, 2e-8), first_token_s=first_s)
    unhurried = replace(engine, first_token_s=float("inf"))
    assert _rps(engine) == pytest.approx(LEAST_LOAD * _rps(unhurried))
    alone = _late_ratio(1e-6, engine, first_s)
    assert alone > MISSED
    assert _late_ratio(_rps(engine), engine, first_s) - alone <= 0.35 * (1.0 - alone)


def _seen(prompt_scale: float, first_s: float) -> float:
    demand = Demand(prompt_tokens=prompt_scale * DEMAND.prompt_tokens, output_tokens=DEMAND.output_tokens)
    return _rps(_engine((1.3e-3, 3.6e-4, 5e-5, 2e-8), **OBJECTIVES | {"first_token_s": first_s}), demand)


def test_capacity_has_no_cliff() -> None:
    """One percent more of the objective or the prompts changes the capacity by at most a tenth.

    This includes the point where prompts of the quantile are late alone; a stricter value never raises it.
    """
    for found in (
        [_seen(1.0, 5.0 * 0.99**at) for at in range(300)],
        [_seen(0.7 * 1.01**at, 1.5) for at in range(150)],
    ):
        ratios = np.array(found[1:]) / np.array(found[:-1])
        assert found[-1] < 0.7 * found[0]
        assert ratios.max() <= 1.002  # the bisection's step
        assert ratios.min() >= 0.9


def test_steps_that_are_too_long_alone_leave_half_of_the_load() -> None:
    """The inter-token objective limits the delay that load adds as well."""
    engine = _engine((0.1, 1e-5, 5e-5, 2e-8), inter_token_s=0.08)
    limit = steady_limits_rps(engine.step_s, engine, DEMAND)[0]
    assert _rps(engine) == pytest.approx(LEAST_LOAD * HEADROOM_RATIO * limit)


def _late_ratio(rate_rps: float, engine: EngineModel, first_s: float) -> float:
    """Share of 100,000 prompts that wait and are prefilled for longer than ``first_s``."""
    rng, count = stream(7, "test_carried"), 100_000
    median = DEMAND.prompt_tokens * np.exp(-0.5 * SIGMA**2)
    prompts = np.minimum(median * np.exp(SIGMA * rng.standard_normal(count)), LONGEST.prompt_tokens)
    service_s = engine.step_s[0, 1] * prompts + engine.step_s[0, 0]
    gaps_s = rng.exponential(1.0 / rate_rps, count)
    steps_s = np.concatenate([[0.0], np.cumsum(service_s[:-1] - gaps_s[1:])])
    waited_s = steps_s - np.minimum.accumulate(steps_s)
    return float((waited_s + service_s > first_s).mean())


def test_the_objective_of_a_whole_answer_limits_the_rate() -> None:
    """Where long answers take too long at a full batch, the capacity is lower."""
    engine = _engine((1.7e-3, 3e-5, 7e-5, 3e-7), inter_token_s=0.08)
    long = Demand(prompt_tokens=100.0, output_tokens=800.0)
    hurried = replace(engine, whole_s=5.0)
    assert _rps(hurried, long) < 0.9 * _rps(engine, long)


def test_long_prompts_delay_short_answers_unless_steps_are_bounded() -> None:
    """Prompts of others fall into the few gaps of a short answer; small steps spread them."""
    short = Demand(prompt_tokens=2000.0, output_tokens=30.0)
    engine = replace(_engine((2e-3, 4.9e-5, 8e-5, 3e-7), inter_token_s=0.08), step_tokens=8192.0)
    spread = replace(engine, step_tokens=256.0)
    assert _rps(engine, short) < 0.9 * _rps(spread, short)


def test_the_quantile_of_gaps_has_the_stated_share() -> None:
    """Mean over log-normal answers of the normal tail at the quantile, by quadrature."""
    z = norm.ppf((np.arange(20000) + 0.5) / 20000)
    assert np.mean(norm.sf(GAP_QUANTILE * np.exp(0.5 * SIGMA * z))) == pytest.approx(MISSED, rel=2e-3)
