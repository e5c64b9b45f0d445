"""The step-time ratio: measured from a replica's counters, unknown where they are insufficient."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from contracts.compiled.steady_state import Demand, EngineModel
from contracts.metrics.runtime import step_time_ratio as ratio_of_times
from contracts.telemetry import EngineCounters
from controller.initial import initial_state
from controller.perceive.step_time import (
    LEAST_TOKENS,
    MOST_PROMPT_RATIO,
    PROMPT_CROWD,
    least_busy_s,
    mean_request,
    observed_step_times,
    step_time_ratio,
)
from policies.registry import make_configuration
from tests.support.fleets.builders import make_layout, quiet_telemetry
from tests.support.fleets.clocks import clocked_fleet, clocks

DEMAND = Demand(prompt_tokens=400.0, output_tokens=200.0)
MODEL = EngineModel(
    step_s=np.array([[0.008, 93e-6, 30e-6, 0.33e-6], [0.012, 100e-6, 40e-6, 0.4e-6]]),
    sequences=np.array([64.0, 64.0]),
    kv_tokens=np.array([2e5, 2e5]),
    inter_token_s=0.08,
    demand=DEMAND,
)
OWNER = np.array([0, 1])
REQUEST = np.array([[400.0, 200.0]])


def counted(batch: float, factor: float = 1.0, prompts: float = 0.0, busy: float = 1.0) -> EngineCounters:
    """Five seconds of which ``busy`` decode ``batch`` sequences, steps ``factor`` times as long as certified.

    prompts: prompts of the declared mean length per request; they meet tokens at any time alike.
    """
    span_s = 5.0
    base, prefill, decode, context = MODEL.step_s.T
    per_token = prompts * DEMAND.prompt_tokens / DEMAND.output_tokens
    each_s = decode + context * DEMAND.context_tokens
    step_s = factor * (base + prefill * per_token * batch + each_s * (batch + 1.0))
    steps = busy * span_s / step_s
    tokens = steps * batch
    values = {
        "span_s": np.full(2, span_s),
        "iterations": steps,
        "prompt_tokens": tokens * per_token,
        "generation_tokens": tokens,
        "inter_token_s": np.full(2, busy * span_s * batch),
        "inter_tokens": tokens,
        "queue_s": np.zeros(2),
        "admitted": tokens / DEMAND.output_tokens,
        "finished": tokens / DEMAND.output_tokens,
        "preemptions": np.zeros(2),
    }
    return EngineCounters(**{entry.name: values[entry.name][None] for entry in fields(EngineCounters)})


@pytest.mark.parametrize("batch", [2.0, 16.0, 60.0])
@pytest.mark.parametrize("factor", [0.5, 1.0, 4.0])
def test_ratio_is_the_factor_at_any_load(batch: float, factor: float) -> None:
    """At any batch the ratio is the factor by which steps take longer than certified."""
    found = step_time_ratio(counted(batch, factor), MODEL, OWNER, REQUEST)
    assert found == pytest.approx(np.full((1, 2), factor), rel=1e-9)


@pytest.mark.parametrize("batch", [2.0, 16.0, 60.0])
@pytest.mark.parametrize("factor", [1.0, 2.0, 4.0])
def test_prompts_lower_the_ratio_by_no_more_than_their_crowd(batch: float, factor: float) -> None:
    """Evenly spread prompts are counted one and a half times, so that no healthy server is called slow."""
    found = step_time_ratio(counted(batch, factor, prompts=0.5), MODEL, OWNER, REQUEST)
    least = factor / (1.0 + MOST_PROMPT_RATIO * (PROMPT_CROWD - 1.0))
    assert ((found >= least) & (found < factor)).all()


@given(batch=st.floats(2.0, 60.0), busy=st.floats(0.02, 1.0), prompts=st.floats(0.0, 40.0))
def test_bursts_make_no_healthy_server_slow(batch: float, busy: float, prompts: float) -> None:
    """However long a server idles between bursts, and however long prompts are, it is healthy or unknown."""
    scrape = counted(batch, 1.0, prompts, busy)
    assume((scrape.iterations >= 1.0).all())
    found = step_time_ratio(scrape, MODEL, OWNER, REQUEST)
    assert not (found > 1.25).any()


def test_scrapes_of_prompts_are_unknown() -> None:
    """The counters do not show which tokens waited for prompts, and for how long."""
    assert np.isnan(step_time_ratio(counted(16.0, prompts=40.0), MODEL, OWNER, REQUEST)).all()


@pytest.mark.parametrize("name", ["span_s", "iterations", "inter_token_s", "inter_tokens", "prompt_tokens"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_invalid_counters_are_unknown(name: str, value: float) -> None:
    """A missing, infinite or backward counter is neither slow nor fast, and affects no other replica."""
    healthy = counted(16.0)
    broken = getattr(healthy, name).copy()
    broken[0, 0] = value
    found = step_time_ratio(replace(healthy, **{name: broken}), MODEL, OWNER, REQUEST)
    assert np.isnan(found[0, 0])
    assert found[0, 1] == pytest.approx(1.0)


def test_few_tokens_and_preemptions_are_unknown() -> None:
    """A token that waited for blocks shows nothing of the kernel; preemptions may not be exported."""
    healthy = counted(16.0)
    few = replace(healthy, inter_tokens=np.full((1, 2), LEAST_TOKENS - 1.0))
    assert np.isnan(step_time_ratio(few, MODEL, OWNER, REQUEST)).all()
    preempted = replace(healthy, preemptions=np.array([[1.0, 0.0]]))
    assert np.isnan(step_time_ratio(preempted, MODEL, OWNER, REQUEST)).tolist() == [[True, False]]
    silent = replace(healthy, preemptions=np.full((1, 2), np.nan))
    assert np.isfinite(step_time_ratio(silent, MODEL, OWNER, REQUEST)).all()
    nothing = EngineCounters.unknown(3, 2)
    assert np.isnan(step_time_ratio(nothing, MODEL, OWNER, np.repeat(REQUEST, 3, axis=0))).all()


def test_mean_request_starts_as_declared_and_follows_what_was_counted() -> None:
    """Declared tokens count for a fixed number of requests, counted tokens for themselves."""
    nothing, counts = np.zeros((1, 4)), np.array([[20.0, 20.0 * 800.0, 20.0, 20.0 * 100.0]])
    assert mean_request(nothing, MODEL, 20.0).tolist() == [[400.0, 200.0]]
    assert mean_request(counts, MODEL, 20.0).tolist() == [[600.0, 150.0]]


def test_metric_is_measured_over_certified() -> None:
    """The registered definition; a certified time of 0 is refused."""
    assert ratio_of_times(3.0, 2.0) == 1.5
    with pytest.raises(ValueError, match="above 0"):
        ratio_of_times(1.0, 0.0)


def test_with_own_clocks_off_the_ratio_is_unknown() -> None:
    """A set-up with ``own_clocks="off"`` gets no ratio, whatever a server counts."""
    layout = make_layout(kernels=2, slices=2, per_kernel=1)
    asked = make_configuration("fixed", clocked_fleet(layout))
    seen = clocks([1.0, 4.0])(quiet_telemetry(layout, 5.0), 5.0)
    for setup in (asked, replace(asked, own_clocks="off")):
        found = observed_step_times(initial_state(setup, 1), seen, setup)
        assert bool(np.isnan(found).all()) is (setup.own_clocks == "off")


@given(
    batch=st.floats(1.0, 60.0),
    prompts=st.floats(0.0, 1.0),
    busy=st.floats(0.1, 1.0),
    deviations=st.floats(-1.99, 4.0),
)
def test_steps_are_busy_for_no_longer_than_they_took(
    batch: float, prompts: float, busy: float, deviations: float
) -> None:
    """True step times two standard deviations below the certified ones, and any above."""
    factor = float(np.exp(MODEL.spread * deviations))
    found_s = least_busy_s(counted(batch, factor, prompts, busy), MODEL, OWNER, REQUEST)
    assert found_s.shape == (1, 2)
    assert (found_s <= busy * 5.0 * (1.0 + 1e-9)).all()
    certified_s = least_busy_s(counted(batch, 1.0, prompts, busy), MODEL, OWNER, REQUEST)
    assert (certified_s > np.exp(-2.0 * MODEL.spread) * busy * 5.0 * batch / (batch + 1.0)).all()
