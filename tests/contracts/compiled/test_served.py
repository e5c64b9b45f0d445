"""Laws of what serving adds: nothing by default, steps longer, objectives nearer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from contracts.compiled.served import request_delay_s, served_step_s
from contracts.compiled.steady_state import Demand, EngineModel, capacity_rps
from contracts.documents.profile import ServingPath, StepTime

STEP = StepTime(
    base_ms=7.3,
    per_prefill_token_ms=0.031,
    per_decode_sequence_ms=0.21,
    per_context_token_ms=0.0007,
    relative_error=0.0,
    measured_points=8,
)
MODEL = EngineModel(
    step_s=served_step_s(STEP)[None],
    sequences=np.array([64.0]),
    kv_tokens=np.array([1e5]),
    inter_token_s=0.05,
    first_token_s=0.5,
    whole_s=6.0,
    demand=Demand(prompt_tokens=300.0, output_tokens=64.0),
)


def _carried(model: EngineModel) -> float:
    return capacity_rps(model, model.step_s[0], model.demand, 0)


def test_nothing_measured_changes_no_byte() -> None:
    """A profile without a serving path, or with one of zeros, has the engine's own coefficients."""
    plain = np.array([7.3, 0.031, 0.21, 0.0007]) / 1000.0
    assert served_step_s(STEP).tobytes() == plain.tobytes()
    assert served_step_s(STEP, ServingPath()).tobytes() == plain.tobytes()
    assert request_delay_s(None) == 0.0
    assert _carried(replace(MODEL, request_s=(0.0,))) == _carried(MODEL)


def test_waits_and_tokens_hold_the_loop() -> None:
    """Step and token overhead are parts of the step, and the request's is none."""
    added = ServingPath(request_overhead_ms=20.0, step_overhead_ms=1.7, token_overhead_ms=0.5)
    longer = served_step_s(STEP, added) - served_step_s(STEP)
    assert longer == pytest.approx([1.7e-3, 0.0, 0.5e-3, 0.0], abs=1e-12)
    assert request_delay_s(added) == pytest.approx(0.02)


def test_every_term_takes_capacity_away() -> None:
    """A replica carries less with each of the terms, and nothing to speak of once they eat an objective."""
    healthy = _carried(MODEL)
    slowed = served_step_s(STEP, ServingPath(step_overhead_ms=2.0, token_overhead_ms=0.5))[None]
    assert _carried(replace(MODEL, step_s=slowed)) < healthy
    assert _carried(replace(MODEL, request_s=(0.3,))) < healthy
    assert _carried(replace(MODEL, request_s=(7.0,))) == pytest.approx(1e-3)


def test_each_kernel_pays_for_its_own_path() -> None:
    """The objectives of a kernel lack its own delay; those of the fleet, the longest."""
    two = replace(MODEL, request_s=(0.0, 0.1))
    assert two.objectives_of(0) == MODEL.objectives
    assert two.objectives == two.objectives_of(1)
    assert two.objectives.whole_s == pytest.approx(5.9)
    assert two.objectives.inter_token_s == 0.05
