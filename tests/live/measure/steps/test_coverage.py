"""Uncertainty of fitted step times, on simulated servers with known step times."""

from __future__ import annotations

from functools import lru_cache
from typing import cast

import numpy as np
import pytest

from contracts.documents.step_time import StepPrediction, StepTime
from live.measure.backend import Session, StepPlan
from live.measure.steps.agreement import WANTED_SHARE, step_agreement
from live.measure.steps.model import fit_step_time, widest_point, widest_prediction
from live.measure.steps.timed_requests import load_of, requests_of, turns_of
from live.measure.steps.times import measure_steps
from tests.support.servers.made_server import NAMES, TRUTH, MadeServer, Restless

PLAN = StepPlan(
    batches=(1, 2, 4),
    decode_steps=24,
    rounds=1,
    blocks=8,
    most_blocks=64,
    least_seconds=120.0,
    most_seconds=300.0,
)
MAKES = 20
#: Time between two measurements of one server.
MINUTES_S = 300.0
WAYS = {
    "calm": Restless(drift=0.0),
    "drifts within seconds": Restless(drift_s=5.0),
    "drifts within half a minute": Restless(drift_s=20.0),
    "drifts within minutes": Restless(drift_s=100.0),
    "bursts of others": Restless(busy_share=0.15),
    "noise and many short bursts": Restless(noise=0.08, busy_share=0.2, busy_s=1.0),
}


@lru_cache(maxsize=8)
def measured(ways: Restless) -> tuple[tuple[StepTime, ...], ...]:
    """Three measurements, minutes apart, of each of ``MAKES`` servers."""
    return tuple(three(MadeServer(seed, ways)) for seed in range(MAKES))


def three(server: MadeServer) -> tuple[StepTime, ...]:
    """Three measurements of ``server``."""
    models = []
    for _ in range(3):
        models.append(fit_step_time(server.time_steps(PLAN)))
        server.pace.sleep(MINUTES_S)
    return tuple(models)


def true_ms(point: StepPrediction) -> float:
    """The time that the server takes for a predicted step."""
    work = (1, point.prefill_tokens, point.decode_sequences, point.context_tokens)
    return float(np.dot(TRUTH[:4], work))


@pytest.mark.slow
@pytest.mark.parametrize("ways", WAYS.values(), ids=WAYS.keys())
def test_the_stated_intervals_hold_the_truth(ways: Restless) -> None:
    """At least 93 % of the intervals of coefficients, and of predictions, hold the true value."""
    models = [model for group in measured(ways) for model in group]
    found, said = [], []
    for model in models:
        assert model.half_widths is not None
        for name, value in zip(NAMES, TRUTH, strict=False):
            found.append(abs(getattr(model, name) - value) <= getattr(model.half_widths, name))
        said += [abs(p.predicted_ms - true_ms(p)) <= p.half_width_ms for p in model.predictions or ()]
    assert np.mean(found) >= 0.93
    assert np.mean(said) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("ways", WAYS.values(), ids=WAYS.keys())
def test_three_measurements_minutes_apart_agree(ways: Restless) -> None:
    """For at least 95 % of the servers all three measurements agree in every coefficient."""
    agreed = [all(one.agrees for one in step_agreement(group).coefficients) for group in measured(ways)]
    assert np.mean(agreed) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("ways", WAYS.values(), ids=WAYS.keys())
def test_predictions_become_as_sure_as_wanted(ways: Restless) -> None:
    """In nine of ten measurements all three step times are known to 15 % before the time ends."""
    models = [model for group in measured(ways) for model in group]
    assert all(len(model.predictions or ()) == 3 for model in models)
    assert np.mean([widest_prediction(model) <= WANTED_SHARE for model in models]) >= 0.9


@pytest.mark.parametrize("most_seconds", [60.0, 120.0, 300.0])
def test_neither_load_nor_time_exceed_what_was_stated(most_seconds: float) -> None:
    """A server that never reaches the target gets no more load than stated, and no request after the end."""
    plan = StepPlan(
        batches=(1, 2, 4), rounds=1, blocks=8, most_blocks=64, least_seconds=24.0, most_seconds=most_seconds
    )
    server = MadeServer(1, Restless(noise=0.8, busy_share=0.4))
    server.time_steps(plan)
    load = load_of(plan)
    longest_s = 20.0  # of one request of this server
    assert server.now_s <= load.seconds + longest_s
    assert server.requests <= load.requests
    assert server.tokens <= load.tokens
    assert server.most_at_once <= load.sequences == 4


def test_a_calm_server_is_left_alone_between_rounds() -> None:
    """The least number of rounds is spread over the least time, and a calm server gets no more."""
    server = MadeServer(1, Restless(noise=0.01, drift=0.0))
    server.time_steps(PLAN)
    kinds = requests_of(PLAN)
    assert server.requests == len(kinds) + PLAN.blocks * sum(turns_of(kinds))
    assert server.now_s >= PLAN.least_seconds * (PLAN.blocks - 1) / PLAN.blocks


def test_bursts_that_hit_a_few_rounds_hardly_move_the_model() -> None:
    """With other processes running a seventh of the time every prediction stays within 6 % of the truth."""
    model = fit_step_time(MadeServer(3, Restless(busy_share=0.15)).time_steps(PLAN))
    for point in model.predictions or ():
        assert point.predicted_ms == pytest.approx(true_ms(point), rel=0.06)


def test_what_is_not_reached_is_said_with_the_point_and_the_remedies() -> None:
    """A server too noisy for its time is refused or noted with the widest point and the remedy."""
    session = cast("Session", MadeServer(1, Restless(noise=0.8, busy_share=0.4)))
    wide = StepPlan(batches=(1, 2, 4), rounds=1, blocks=8, most_seconds=60.0, most_half_width=100.0)
    model, notes = measure_steps(session, wide)
    assert model is not None
    point = widest_point(model)
    assert point is not None
    told = " ".join(notes)
    assert f"{point.decode_sequences} sequences decoding" in told
    assert "--step-seconds" in told
    strict = StepPlan(batches=(1, 2, 4), rounds=1, blocks=8, most_seconds=60.0, most_half_width=0.05)
    refused, notes = measure_steps(session, strict)
    assert refused is None
    assert "--no-step-times" in " ".join(notes)


@pytest.mark.parametrize("most_seconds", [1.0, 15.0])
def test_a_server_too_slow_for_three_rounds_is_refused(most_seconds: float) -> None:
    """If too few rounds end in time to compare them, the note names the option that allows more."""
    plan = StepPlan(batches=(1, 2, 4), rounds=1, blocks=8, most_seconds=most_seconds)
    server = MadeServer(1, Restless(), truth=tuple(10.0 * value for value in TRUTH))
    model, notes = measure_steps(cast("Session", server), plan)
    assert model is None
    assert "--step-seconds" in " ".join(notes)


def test_a_coefficient_of_nothing_is_at_most_its_half_width() -> None:
    """If context costs nothing the interval reaches from 0 to its half-width, and holds 0."""
    server = MadeServer(2, Restless(), truth=(4.0, 0.05, 0.6, 0.0, 5.0, 0.8))
    model = fit_step_time(server.time_steps(PLAN))
    assert model.half_widths is not None
    assert 0.0 <= model.per_context_token_ms <= model.half_widths.per_context_token_ms
    assert model.half_widths.per_context_token_ms > 0.0
