"""Fleets with replicas' own clocks: a contract that limits step times, and counters of engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from contracts.compiled.contract import FleetLayout
from contracts.compiled.steady_state import Demand, EngineModel
from contracts.telemetry import EngineCounters, FleetTelemetry, Source
from controller.fleet import FleetSetup
from tests.support.fleets.builders import DEFAULT_CLAUSES, Clause, make_contract, make_fleet
from tests.support.fleets.worlds import Edit

STEP_S, SPAN_S, DECODING = 0.01, 1.0, 8.0
CLOCK = Clause(name="R-step-time", family="R", source=Source.STEP_TIME, threshold=1.4, hard=False, level=2)


def clocked_fleet(layout: FleetLayout, cap_ratio: float = 0.5) -> FleetSetup:
    """Each step of every kernel is certified to take ``STEP_S``, whatever its batch; slices live on all."""
    kernels = len(layout.kernels)
    model = EngineModel(
        step_s=np.tile([STEP_S, 0.0, 0.0, 0.0], (kernels, 1)),
        sequences=np.full(kernels, 64.0),
        kv_tokens=np.full(kernels, 2e5),
        inter_token_s=0.08,
        demand=Demand(prompt_tokens=400.0, output_tokens=200.0),
    )
    contract = make_contract(layout, (*DEFAULT_CLAUSES, CLOCK), ejection_cap_ratio=cap_ratio)
    home = np.arange(len(layout.slices)) % kernels
    return make_fleet(layout, contract=contract, engine=model, home=home)


def clocks(factors: Sequence[float], from_at_s: float = 0.0, until_at_s: float = np.inf) -> Edit:
    """Steps take these multiples of the certified time, by replica (NaN: no clock); outside the span, 1."""

    def edit(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        factor = np.array(factors, dtype=np.float64)
        if not from_at_s < now_s <= until_at_s:
            factor = np.where(np.isnan(factor), np.nan, 1.0)
        counted = EngineCounters.unknown(len(seen.now_ms), factor.size)
        tokens = SPAN_S * DECODING / (STEP_S * factor)
        shown = {"span_s": SPAN_S, "inter_token_s": SPAN_S * DECODING, "inter_tokens": tokens}
        shown["iterations"] = tokens / DECODING
        for name, value in {**shown, "prompt_tokens": 2.0 * tokens, "preemptions": 0.0}.items():
            getattr(counted, name)[:] = np.where(np.isnan(factor), np.nan, np.asarray(value))
        return replace(seen, engine=counted)

    return edit
