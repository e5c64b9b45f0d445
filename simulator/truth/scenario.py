"""Ground truth of a scenario before it runs: its one incident, the interval of evidence, capacities.

``contracts.scoring.feasible`` computes its optimum from true capacities and the losses of healthy kernels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.steady_state import Demand, capacities_rps, steady_limits_rps
from contracts.scoring.episode import Incident
from faults.catalogue import CATALOGUE, Channel
from faults.schedule import acts
from simulator.world.compiled_scenario import CompiledScenario


def record_facts(scenario: CompiledScenario, policy: str, seed: int) -> dict[str, Any]:
    """Fields of ``EpisodeRecord`` that describe the run and its fleet, equal for all records of
    ``scenario``.
    """
    layout = scenario.layout
    return {
        "run_id": f"{scenario.name}/{policy}/{seed}",
        "scenario": scenario.name,
        "policy": policy,
        "seed": seed,
        "tick_s": scenario.tick_s,
        "horizon_s": scenario.horizon_s,
        "kernels": layout.kernels,
        "known_good": layout.known_good,
        "slices": layout.slices,
        "replicas": layout.replicas,
        "replica_kernel": layout.replica_kernel,
        "hard_slices": scenario.engine.hard_slices,
    }


def incident_of(scenario: CompiledScenario) -> Incident | None:
    """The one incident of a scenario: from the first onset to the last end of its effective faults."""
    plans = [plan for plan in scenario.plans if acts(plan)]
    surges = [surge for surge in scenario.surges if surge.is_fault]
    if not plans and not surges:
        return None
    return Incident(
        fault="+".join([plan.name for plan in plans] + [surge.name for surge in surges]),
        onset_at_s=min([plan.onset_s for plan in plans] + [surge.at_s for surge in surges]),
        ends_at_s=max([plan.ends_at_s for plan in plans] + [surge.ends_at_s for surge in surges]),
        period_s=max((plan.period_s for plan in plans), default=0.0),
        silent=not surges and all(CATALOGUE[plan.kind].silent for plan in plans),
    )


def evidence_interval_s(scenario: CompiledScenario) -> float:
    """Seconds between a replica's probes if some fault is numeric, else between its scrapes."""
    seen = scenario.telemetry
    numeric = any(CATALOGUE[plan.kind].channel is Channel.NUMERIC for plan in scenario.plans if acts(plan))
    if not numeric:
        return float(seen.scrape_interval_s)
    return 1.0 / seen.probes_per_s if seen.probes_per_s > 0.0 else math.nan


def true_rps(scenario: CompiledScenario, demand: Demand) -> NDArray[np.float64]:
    """Requests per second of ``demand`` that one healthy replica of each kernel carries, [K].

    Uses the model of ``contracts.compiled.carried`` with the true coefficients.
    """
    return capacities_rps(scenario.engine.step_model, scenario.engine_model, demand)


def most_rps(scenario: CompiledScenario) -> NDArray[np.float64]:
    """The most that each replica carries in steady state, float64 [R]; above it queues grow without bound.

    If token counts drift, it is the larger value of the drift's two ends.
    """
    drift = scenario.workload.drift
    both_ends = (demand_at(scenario, part) for part in ((0.0,) if drift is None else (0.0, 1.0)))
    known = scenario.engine.step_model, scenario.engine_model
    each = np.max([steady_limits_rps(*known, demand) for demand in both_ends], axis=0)
    return np.asarray(each[scenario.layout.replica_kernel])


def healthy_loss(scenario: CompiledScenario) -> NDArray[np.float64]:
    """Mean excess total variation of a healthy kernel's answers on a slice's traffic prompts, float64
    [K, S].
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
