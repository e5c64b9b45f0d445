"""What the optimum of ``contracts.scoring.feasible`` knows of a scenario: true capacities and healthy
losses.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.steady_state import Demand, capacities_rps, steady_limits_rps
from simulator.world.compiled_scenario import CompiledScenario


def true_rps(scenario: CompiledScenario, demand: Demand) -> NDArray[np.float64]:
    """Requests per second of ``demand`` that one healthy replica of each kernel carries, [K]: the model of
    ``contracts.compiled.carried`` at the true coefficients.
    """
    return capacities_rps(scenario.engine.step_model, scenario.engine_model, demand)


def most_rps(scenario: CompiledScenario) -> NDArray[np.float64]:
    """The most that each replica carries in steady state, float64 [R], above which queues grow without end.

    Where token counts drift, of the requests that it carries most of.
    """
    drift = scenario.workload.drift
    both_ends = (demand_at(scenario, part) for part in ((0.0,) if drift is None else (0.0, 1.0)))
    known = scenario.engine.step_model, scenario.engine_model
    each = np.max([steady_limits_rps(*known, demand) for demand in both_ends], axis=0)
    return np.asarray(each[scenario.layout.replica_kernel])


def healthy_loss(scenario: CompiledScenario) -> NDArray[np.float64]:
    """Mean excess total variation of a healthy kernel's answers on a slice's traffic prompts, float64 [K,
    S].
    """
    prompts = scenario.prompts
    mine = [prompts.traffic_of(place) for place in range(len(scenario.layout.slices))]
    return np.array(
        [[table.quality[0, own].sum() / max(own.size, 1) for own in mine] for table in scenario.tables]
    )


def demand_at(scenario: CompiledScenario, part: float) -> Demand:
    """The mean request after ``part`` (0 to 1) of a drift; ``scenario.demand`` is that of its middle."""
    drift, mean = scenario.workload.drift, scenario.demand
    if drift is None:
        return mean
    prompt, output = (
        2.0 * (1.0 + (factor - 1.0) * part) / (1.0 + factor)
        for factor in (drift.prompt_factor, drift.output_factor)
    )
    return Demand(prompt_tokens=mean.prompt_tokens * prompt, output_tokens=mean.output_tokens * output)
