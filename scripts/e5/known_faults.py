"""Notices of the informed reference for a scenario: each fault, at its onset plus a floor.

    floor = one interval of the stream that shows it + known-law CUSUM delay on the best stream + one tick

Numeric faults: the streams of probe values, one per metric, of the kernel (its replicas pooled) or of the
single replica, on one slice or on all of them in turn; healthy and faulty laws as measured on the probe
prompts, binned with smoothing or, for the drift, log-normal (``controller.detect.calibration.known_law``);
ARL0 as the contract's budget of false switches splits it, so the same as for the sequential detector. A
kernel's stream over all slices, which the detector lacks, may alarm as often a month as its stream of one
slice: an alarm there moves every slice.

Other faults: a crash shows at the next tick (discovery); a hang by missing answers, a failing replica by the
gateway's counts, each by a CUSUM with known rates, of requests and probes alike; faults that show in scrapes
alone (slow hosts, late answers, held blocks, fingerprints, trace fields) by the next scrape, which no
detector can beat.

Notices follow the truth about broken *contracts*. A ramp is known as soon as any of its steps is. An
intermittent fault counts as one from its first burst to its end. A fault of some replicas ejects them as
far as the contract's cap allows; of more, it is the kernel's. The end is known one interval and one tick
after it. Two simultaneous faults have separate notices.

Also known is the true capacity of every kernel: the steady-state model at its true step times, of the
requests as they are at that time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import Source
from controller.detect.budget import Budget, split_budget
from controller.detect.calibration.known_law import KnownLaw, binned_law, delay, lognormal_law, mixed
from faults.catalogue import CATALOGUE, Channel
from faults.effects import HEALTHY, ActiveFault, ReplicaEffect, apply
from faults.schedule import FaultPlan, acts
from policies.rules.informed import Notices
from simulator.truth.scenario import demand_at, true_rps
from simulator.truth.violations import numeric_or_observability, runtime
from simulator.world.compiled_scenario import CompiledScenario

Floats = NDArray[np.float64]

#: Healthy replicas fail at most this share of their answers, in a known law.
FAILED_BEFORE = 0.001
#: A replica with this fault fails a share of its requests.
_FAILING = "http_errors"
#: Streams whose delay is computed; the others need longer by the first-order bound ln(ARL0) / KL.
_CLOSEST = 3
#: A replica with one of these faults still answers: late, or most of the requests.
_ANSWERING = frozenset({"http_errors", "latency", "slow"})
#: Steps in which the informed policy follows a drift of the token counts.
_DRIFT_STEPS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One stream that may show a fault: law of its observations, their rate per second, and ARL0 in them."""

    law: KnownLaw
    rate_per_s: float
    arl0: float

    @property
    def first_order_s(self) -> float:
        """Lorden's ln(ARL0) / KL, in seconds."""
        return math.log(self.arl0) / max(self.law.information, 1e-12) / self.rate_per_s

    @property
    def delay_s(self) -> float:
        """Mean delay of the CUSUM with known laws, in seconds."""
        return delay(self.law, self.arl0) / self.rate_per_s


def known_faults(scenario: CompiledScenario) -> Notices:
    """All notices for ``scenario``."""
    rows = [
        row for index, plan in enumerate(scenario.plans) if acts(plan) for row in _of_plan(scenario, index)
    ]
    slices = len(scenario.layout.slices)
    return Notices(
        from_at_s=np.array([row.from_at_s for row in rows]),
        until_at_s=np.array([row.until_at_s for row in rows]),
        kernel=np.array([row.kernel for row in rows], dtype=np.int64),
        replica=np.array([row.replica for row in rows], dtype=np.int64),
        slices=np.array([row.slices for row in rows], dtype=np.bool_).reshape(len(rows), slices),
        answers=np.array([row.answers for row in rows], dtype=np.bool_),
        fail_ratio=np.array([row.fail_ratio for row in rows]),
        began_at_s=np.array([row.began_at_s for row in rows]),
        **_true_capacity(scenario),
    )


def _true_capacity(scenario: CompiledScenario) -> dict[str, Floats]:
    """Capacity of a replica of each kernel for the traffic as it is at each time."""
    drift = scenario.workload.drift
    steps = 1 if drift is None else _DRIFT_STEPS
    at = np.arange(steps) / steps
    return {
        "rps_from_at_s": at * (0.0 if drift is None else drift.over_s),
        "replica_rps": np.stack([true_rps(scenario, demand_at(scenario, float(part))) for part in at]),
    }


@dataclass(frozen=True, slots=True)
class _Row:
    from_at_s: float
    until_at_s: float
    kernel: int
    replica: int
    slices: NDArray[np.bool_]  # [S]
    answers: bool
    fail_ratio: float
    began_at_s: float


def _of_plan(scenario: CompiledScenario, index: int) -> Iterator[_Row]:
    """Entries of one fault: per kernel and slice it breaks, or per replica that can be ejected."""
    plan, owner = scenario.plans[index], scenario.layout.replica_kernel
    until_at_s = plan.ends_at_s + _interval_s(scenario, plan) + scenario.tick_s
    for kernel in sorted({int(owner[replica]) for replica in plan.replicas}):
        mine = [r for r in plan.replicas if owner[r] == kernel and not scenario.absent[r]]
        if not mine:
            continue
        whole = len(mine) > _ejectable(scenario, kernel)
        about = plan.kind in _ANSWERING, plan.dose if plan.kind == _FAILING else 0.0, plan.onset_s
        known = _known_from(scenario, index, mine[0], len(mine), whole=whole)
        if whole:
            for place in np.flatnonzero(np.isfinite(known)):
                slices = np.arange(known.size) == place
                yield _Row(known[place], until_at_s, kernel, -1, slices, *about)
        elif np.isfinite(known).any():
            for replica in mine:
                yield _Row(known.min(), until_at_s, -1, replica, np.isfinite(known), *about)


def _ejectable(scenario: CompiledScenario, kernel: int) -> int:
    """Replicas of ``kernel`` that may be ejected: the contract's cap, and one stays."""
    present = int(((scenario.layout.replica_kernel == kernel) & ~scenario.absent).sum())
    return min(present - 1, max(1, math.floor(scenario.contract.ejection_cap_ratio * present)))


def _known_from(scenario: CompiledScenario, index: int, replica: int, count: int, *, whole: bool) -> Floats:
    """When the fault is known to break the contract on each slice, s, float64 [S]; inf: it does not."""
    plan = scenario.plans[index]
    known = np.full(len(scenario.layout.slices), np.inf)
    kernel = int(scenario.layout.replica_kernel[replica])
    for change in scenario.fault_changes:
        if change.fault != index or change.intensity <= 0.0:
            continue
        effect = _effect(plan, replica, change.intensity)
        broken = numeric_or_observability(scenario, kernel, effect) | runtime(scenario, kernel, effect)
        if (known[broken] > change.at_s).any():
            at_s = change.at_s + lower_bound_s(scenario, plan, kernel, effect, count, whole=whole)
            known = np.where(broken, np.minimum(known, at_s), known)
    return known


def _effect(plan: FaultPlan, replica: int, intensity: float) -> ReplicaEffect:
    ladder = plan.ladders[plan.replicas.index(replica)]
    fault = ActiveFault(kind=plan.kind, intensity=intensity, dose=plan.dose, ladder=ladder)
    return apply(HEALTHY, [fault])


def _interval_s(scenario: CompiledScenario, plan: FaultPlan) -> float:
    """Interval of the stream that shows the fault, s."""
    channel, seen = CATALOGUE[plan.kind].channel, scenario.telemetry
    if channel is Channel.NUMERIC:
        return 1.0 / seen.probes_per_s if seen.probes_per_s > 0.0 else math.inf
    if channel in (Channel.CRASH, Channel.HANG, Channel.HTTP_ERROR):
        return scenario.tick_s
    return seen.scrape_interval_s + seen.scrape_delay_s


def lower_bound_s(
    scenario: CompiledScenario,
    plan: FaultPlan,
    kernel: int,
    effect: ReplicaEffect,
    count: int,
    *,
    whole: bool,
) -> float:
    """Least time from the onset of ``effect`` on ``count`` replicas until it can be known, s.

    whole: it hits the kernel as a whole, so that pooled streams show it.
    """
    channel, wait_s = CATALOGUE[plan.kind].channel, _interval_s(scenario, plan)
    found = 0.0
    if channel is Channel.NUMERIC:
        found = _numeric_s(scenario, kernel, effect.condition, count if whole else 0)
    elif channel is Channel.HANG:
        found = math.log(_traffic_arl0(scenario)) / _attempts_per_s(scenario, kernel)
    elif channel is Channel.HTTP_ERROR:
        found = _failing_s(scenario, kernel, effect.http_error_ratio)
    return wait_s + found + scenario.tick_s


def _failing_s(scenario: CompiledScenario, kernel: int, ratio: float) -> float:
    after = min(max(ratio, 2.0 * FAILED_BEFORE), 1.0 - FAILED_BEFORE)
    law = KnownLaw(
        before=np.array([1.0 - FAILED_BEFORE, FAILED_BEFORE]), after=np.array([1.0 - after, after])
    )
    return delay(law, _traffic_arl0(scenario)) / _attempts_per_s(scenario, kernel)


def _attempts_per_s(scenario: CompiledScenario, kernel: int) -> float:
    """Requests plus one replica's probes: an idle kernel is observed by its probes."""
    return max(float(scenario.fair_rps[kernel]) + scenario.telemetry.probes_per_s, 1e-9)


def _arl0(scenario: CompiledScenario) -> tuple[Floats, Floats]:
    """ARL0 of the streams of replicas [R, S, C] and kernels [K, S, C], in observations; inf: no stream."""
    allowed = Budget(per_slice_month=scenario.contract.false_switch_budget_per_slice_month)
    split = split_budget(scenario.contract, scenario.layout, scenario.setup.rates, allowed)
    return split.replica_arl0, split.kernel_arl0


def _traffic_arl0(scenario: CompiledScenario) -> float:
    """Largest ARL0 of a replica's streams of traffic, in scrapes, as observations of the gateway's counts."""
    replica, _ = _arl0(scenario)
    traffic = replica[:, :, scenario.contract.source != Source.PROBE]
    finite = traffic[np.isfinite(traffic)]
    return float(finite.max()) if finite.size else 1e7


def _numeric_s(scenario: CompiledScenario, kernel: int, condition: int, pooled: int) -> float:
    """Delay of the best stream of probes, s; ``pooled``: replicas whose probes are pooled, 0: one replica."""
    streams = sorted(_streams(scenario, kernel, condition, pooled), key=lambda each: each.first_order_s)
    return min((each.delay_s for each in streams[:_CLOSEST]), default=math.inf)


def _streams(scenario: CompiledScenario, kernel: int, condition: int, pooled: int) -> Iterator[Stream]:
    slices, contract = range(len(scenario.layout.slices)), scenario.contract
    metrics = scenario.layout.probe_metrics
    kinds = [(column, False) for column in range(len(metrics))]
    kinds += [(column, True) for column, name in enumerate(metrics) if name.startswith("kl_mean")]
    rate = scenario.telemetry.probes_per_s / len(slices)
    replica_arl0, kernel_arl0 = _arl0(scenario)
    first = int(np.argmax(scenario.layout.replica_kernel == kernel))
    for column, logs in kinds:
        clauses = np.flatnonzero((contract.source == Source.PROBE) & (contract.column == column))
        laws = [_law(scenario, kernel, condition, column, place, logs=logs) for place in slices]
        known = [law for law in laws if law is not None]
        for budget, replicas in ((replica_arl0[first], 1), (kernel_arl0[kernel], pooled)):
            arl0 = np.where(np.isfinite(budget[:, clauses]), budget[:, clauses], 0.0).max(axis=1, initial=0.0)
            for place, law in enumerate(laws):
                if law is not None and replicas and arl0[place] > 1.0:
                    yield Stream(law=law, rate_per_s=rate * replicas, arl0=float(arl0[place]))
            if len(known) == len(laws) and replicas and arl0.max() > 1.0:
                everywhere = float(arl0.max()) * (2.0 if replicas == 1 else len(laws))
                yield Stream(law=mixed(known), rate_per_s=rate * len(laws) * replicas, arl0=everywhere)


def _law(
    scenario: CompiledScenario, kernel: int, condition: int, column: int, place: int, *, logs: bool
) -> KnownLaw | None:
    """Law of one metric on one slice's probe prompts, healthy and under ``condition``; None: not measured.

    logs: log-normal instead of binned.
    """
    probe = scenario.tables[kernel].probe[..., column][:, scenario.prompts.probe_of(place)].mean(axis=2)
    before, after = probe[0], probe[condition]
    if not (np.isfinite(before).all() and np.isfinite(after).all()) or np.array_equal(before, after):
        return None
    return lognormal_law(before, after) if logs else binned_law(before, after)
