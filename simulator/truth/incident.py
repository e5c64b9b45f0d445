"""What a scenario's record says of its faults: the one incident, and how often a replica is observed."""

from __future__ import annotations

import math

from contracts.scoring.episode import Incident
from faults.catalogue import CATALOGUE, Channel
from faults.schedule import acts
from simulator.world.compiled_scenario import CompiledScenario


def incident_of(scenario: CompiledScenario) -> Incident | None:
    """The one incident of a scenario: from the first onset to the last end of its acting faults."""
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
    """Seconds between a replica's probes where some fault is numeric, else between its scrapes."""
    seen = scenario.telemetry
    numeric = any(CATALOGUE[plan.kind].channel is Channel.NUMERIC for plan in scenario.plans if acts(plan))
    if not numeric:
        return float(seen.scrape_interval_s)
    return 1.0 / seen.probes_per_s if seen.probes_per_s > 0.0 else math.nan
