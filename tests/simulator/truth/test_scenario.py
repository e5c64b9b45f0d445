"""Facts of a scenario for the privileged optimum: capacity, demand, healthy loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from contracts.compiled.steady_state import steady_limits_rps
from contracts.loading.uris import resolve_uri
from simulator.truth.scenario import demand_at, healthy_loss, most_rps, true_rps
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import load_scenario

SUITES = "package:contracts/library/suites"


@pytest.fixture(scope="module")
def base() -> CompiledScenario:
    """The quiet fleet of E5, whose traffic is as declared."""
    return load_scenario(resolve_uri(f"{SUITES}/e5-base.yaml", "tests"))


@pytest.fixture(scope="module")
def drift() -> CompiledScenario:
    """The same fleet with requests that become twice as long."""
    return load_scenario(resolve_uri(f"{SUITES}/e5-stress-drift.yaml", "tests"))


def test_the_most_is_above_true_capacity(base: CompiledScenario) -> None:
    """With traffic as declared and step times as certified, the truth equals what the controller is told."""
    true = true_rps(base, base.demand)
    np.testing.assert_allclose(true, base.capacity_rps)
    assert (most_rps(base) > 1.1 * true[base.layout.replica_kernel]).all()


def test_it_reads_the_true_step_times(base: CompiledScenario) -> None:
    """Steps twice as long carry less, whatever is certified."""
    slow = replace(base, engine=replace(base.engine, step_model=2.0 * base.engine.step_model))
    assert (most_rps(slow) < 0.6 * most_rps(base)).all()


def test_a_drift_is_followed_from_start_to_end(drift: CompiledScenario) -> None:
    """Requests are as declared at first and twice as long at the end; the most is that of the short ones."""
    first, middle, last = (demand_at(drift, part) for part in (0.0, 0.5, 1.0))
    told = drift.engine_model.demand
    assert (first.prompt_tokens, first.output_tokens) == pytest.approx(
        (told.prompt_tokens, told.output_tokens)
    )
    assert middle.prompt_tokens == pytest.approx(drift.demand.prompt_tokens)
    assert last.output_tokens == pytest.approx(2.0 * first.output_tokens)
    each = steady_limits_rps(drift.engine.step_model, drift.engine_model, first)
    np.testing.assert_allclose(most_rps(drift), each[drift.layout.replica_kernel])


def test_a_healthy_kernel_loses_what_its_measured_answers_lose(base: CompiledScenario) -> None:
    """By kernel and slice, small compared with a faulty one's."""
    loss = healthy_loss(base)
    assert loss.shape == (len(base.layout.kernels), len(base.layout.slices))
    assert ((loss >= 0.0) & (loss < 0.05)).all()
