"""What load a scenario declares: its arrivals and its ordinary surges, not the surges that are faults."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from contracts.workload.arrivals import RateProfile
from contracts.workload.azure_trace import Trace
from simulator.world.compiled_scenario import CompiledScenario

#: A trace's rate is counted over so long: shorter bursts are its gaps, not its load.
_COUNTED_S = 60.0


def declared_peak_rps(world: CompiledScenario) -> NDArray[np.float64]:
    """Requests per second of each slice when most are declared to arrive; float64 [S].

    Of a trace: the most that arrive within one minute, as it is played.
    """
    work, profile = world.workload, _without_faults(world)
    if work.trace is None:
        within = profile.starts_at_s < world.horizon_s
        highest = float(profile.rate_rps[within].max())
    else:
        highest = _busiest_minute_rps(work.trace, profile, world.horizon_s)
    return highest * work.slice_share


def declared_load_ratio(world: CompiledScenario) -> float:
    """That peak over all slices, as a share of what the replicas that are there from the start carry."""
    carried = world.capacity_rps[world.layout.replica_kernel][~world.absent].sum()
    return float(declared_peak_rps(world).sum() / carried)


def _without_faults(world: CompiledScenario) -> RateProfile:
    """The rate over time before faults raise it."""
    profile = world.workload.profile
    for surge in world.surges:
        if surge.is_fault:
            profile = profile.scaled(surge.at_s, surge.ends_at_s, 1.0 / surge.factor)
    return profile


def _busiest_minute_rps(trace: Trace, profile: RateProfile, horizon_s: float) -> float:
    rounds = math.ceil((profile.expected(horizon_s) + 1.0) / len(trace))
    counts = trace.arrived_at_s * trace.mean_rate_rps
    played = np.concatenate([counts + len(trace) * number for number in range(rounds)])
    at_s = profile.clock_s(played)
    at_s = at_s[at_s <= horizon_s]
    if not at_s.size:
        return 0.0
    first = np.searchsorted(at_s, at_s - _COUNTED_S, side="right")
    most = int((np.arange(at_s.size) - first + 1).max())
    return most / min(_COUNTED_S, horizon_s)
