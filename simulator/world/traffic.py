"""The scenario's workload: the arrivals of a fleet, drawn in blocks, and the declared load.

The declared load includes arrivals and ordinary surges, but not surges that are faults.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import FleetLayout
from contracts.documents.scenario import ScenarioSpec
from contracts.documents.workload import TokenLengths, Workload
from contracts.loading.uris import resolve_uri
from contracts.workload.arrivals import LengthLaw, RateProfile, constant_rate, diurnal_rate
from contracts.workload.azure_trace import Trace, load_trace
from simulator.engine.api import FleetEngine
from simulator.engine.layout import ARRIVAL
from simulator.world.compiled_scenario import CompiledScenario, Surge
from simulator.world.tables import PromptRoles
from simulator.world.workload import BLOCK, LengthDrift, WorkloadSpec, WorkloadStream

#: Longest output as a share of the smallest KV cache, and longest prompt plus output: every request must fit
#: in addition to the blocks that stay free at admission.
_OUTPUT_SHARE, _WHOLE_SHARE = 0.25, 0.9


def compile_workload(
    spec: ScenarioSpec,
    layout: FleetLayout,
    prompts: PromptRoles,
    surges: tuple[Surge, ...],
    kv_tokens: int,
    file: str,
) -> WorkloadSpec:
    """The workload of ``spec``; lengths are clipped so that every request fits ``kv_tokens``.

    A surge makes the same requests arrive faster while it lasts; it draws no random numbers of its own.
    """
    work = spec.workload
    shares = {entry.slice: entry.share for entry in work.slice_mix}
    share = np.array([shares.get(name, 0.0) for name in layout.slices])
    profile = _profile(work, spec.horizon_s)
    for surge in surges:
        profile = profile.scaled(surge.at_s, surge.ends_at_s, surge.factor)
    longest_output = int(_OUTPUT_SHARE * kv_tokens)
    longest_prompt = int((_WHOLE_SHARE - _OUTPUT_SHARE) * kv_tokens)
    counts = np.bincount(prompts.traffic_slice, minlength=len(layout.slices))
    return WorkloadSpec(
        profile=profile,
        slice_share=share / share.sum(),
        prompt_tokens=(_law(work.prompt_tokens, longest_prompt),),
        output_tokens=(_law(work.output_tokens, longest_output),),
        prompt_ids=np.arange(prompts.traffic.size, dtype=np.int64),
        prompt_offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        gap_cv=work.gamma.gap_cv if work.arrivals == "gamma" and work.gamma else 1.0,
        trace=load_trace(resolve_uri(work.trace_uri, file)) if work.trace_uri else None,
        session_ratio=work.session_share,
        drift=_drift(work, spec.horizon_s),
    )


def _profile(work: Workload, horizon_s: float) -> RateProfile:
    if work.arrivals == "diurnal" and work.diurnal is not None:
        wave = work.diurnal
        return diurnal_rate(
            work.rate_rps,
            amplitude_ratio=wave.amplitude_ratio,
            period_s=wave.period_s,
            phase_s=wave.phase_s,
            horizon_s=horizon_s,
        )
    profile = constant_rate(work.rate_rps)
    if work.arrivals == "surge" and work.surge is not None:
        peak = work.surge
        return profile.scaled(peak.at_s, peak.at_s + peak.duration_s, peak.factor)
    return profile


def _drift(work: Workload, horizon_s: float) -> LengthDrift | None:
    told = work.drift
    if told is None:
        return None
    return LengthDrift(prompt_factor=told.prompt_factor, output_factor=told.output_factor, over_s=horizon_s)


def _law(lengths: TokenLengths, longest: int) -> LengthLaw:
    sigma = lengths.sigma if lengths.distribution == "lognormal" else 0.0
    return LengthLaw(mean=lengths.mean, sigma=sigma, high=max(1, min(lengths.max_tokens, longest)))


class DrawnTraffic:
    """The arrivals of B fleets up to ``horizon_s``, drawn ahead of time into their engine, block by block."""

    def __init__(self, workloads: list[WorkloadSpec], seeds: list[int], horizon_s: float = np.inf) -> None:
        self._horizon_s = horizon_s
        self._streams = [WorkloadStream(*mine) for mine in zip(workloads, seeds, strict=True)]
        self._drawn_until_at_s = np.full(len(seeds), -np.inf)
        self._enough_until_at_s = -np.inf
        self._block = np.empty(BLOCK, ARRIVAL)

    def feed(self, engine: FleetEngine, until_at_s: float) -> None:
        """Feed ``engine`` at least all arrivals up to and including ``until_at_s``."""
        if until_at_s < self._enough_until_at_s:
            return
        for fleet in np.flatnonzero(self._drawn_until_at_s <= until_at_s):
            while self._drawn_until_at_s[fleet] <= until_at_s:
                records = self._streams[fleet].draw(self._block, self._horizon_s)
                engine.feed_records(int(fleet), records)
                self._drawn_until_at_s[fleet] = records["arrived_at_s"][-1]
        self._enough_until_at_s = float(self._drawn_until_at_s.min())


#: Window over which a trace's rate is counted; shorter bursts are part of its gaps, not of its load.
_COUNTED_S = 60.0


def declared_peak_rps(world: CompiledScenario) -> NDArray[np.float64]:
    """Requests per second of each slice at the declared peak; float64 [S].

    For a trace: the most that arrive within one minute, as it is replayed.
    """
    work, profile = world.workload, _without_faults(world)
    if work.trace is None:
        within = profile.starts_at_s < world.horizon_s
        highest = float(profile.rate_rps[within].max())
    else:
        highest = _busiest_minute_rps(work.trace, profile, world.horizon_s)
    return highest * work.slice_share


def declared_load_ratio(world: CompiledScenario) -> float:
    """The declared peak over all slices, divided by the capacity of the initially present replicas."""
    carried = world.capacity_rps[world.layout.replica_kernel][~world.absent].sum()
    return float(declared_peak_rps(world).sum() / carried)


def _without_faults(world: CompiledScenario) -> RateProfile:
    """The rate over time without the surges of faults."""
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
