"""Capacity: the steady batch, and slower steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.compiled.steady_state import (
    Demand,
    EngineModel,
    capacity_rps,
    probe_share,
    steady_batch,
    step_s,
)


@given(
    st.tuples(*[st.floats(1e-6, 1e-2)] * 4),
    st.floats(10.0, 2000.0),
    st.floats(2.0, 500.0),
    st.floats(1.0, 64.0),
)
def test_steady_batch_inverts_throughput(
    model: tuple[float, ...], prompt: float, output: float, batch: float
) -> None:
    """At the rate that a batch carries, the steady state is that batch."""
    coefficients = np.array(model)
    demand = Demand(prompt_tokens=prompt, output_tokens=output)
    rate = batch / (output * step_s(coefficients, demand, batch))
    assert steady_batch(coefficients, demand, 1e9, rate) == pytest.approx(batch, rel=1e-6)


@given(st.tuples(*[st.floats(1e-6, 1e-2)] * 4), st.floats(1.0, 4.0))
def test_capacity_falls_with_slower_steps(model: tuple[float, ...], factor: float) -> None:
    """A replica whose steps take longer never carries more."""
    demand = Demand(prompt_tokens=256.0, output_tokens=64.0)
    coefficients = np.array(model)
    engine = EngineModel(
        step_s=coefficients[None],
        sequences=np.array([64.0]),
        kv_tokens=np.array([1e6]),
        inter_token_s=0.1,
        demand=demand,
    )
    fast, slow = (capacity_rps(engine, steps, demand, 0) for steps in (coefficients, coefficients * factor))
    assert slow <= fast * (1 + 1e-9)
    shares = [probe_share(model[None], 1.0, 64.0)[0] for model in (coefficients, coefficients * factor)]
    assert shares[0] <= shares[1]
