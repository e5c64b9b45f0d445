"""Detection on values measured on real kernels: found doses, seconds until detection, and budgets.

One faulty replica of a fleet of twelve is probed round robin over the slices; its probes replay the measured
values of the probe prompts, healthy for 200 probes and then under the fault. All probe clauses of the shipped
``serving-pool-full-vocab`` contract run on every slice, with the bets that the controller has by default and
with guaranteed thresholds from the default budget of one false switch per slice-month. Whether a dose breaks
the contract is judged on other prompts (``traffic``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.assess.samples import KernelSamples, load_samples
from contracts.compiled.build import compile_contract
from contracts.compiled.contract import CompiledContract, FleetLayout
from contracts.documents.contract import KernelContract
from contracts.documents.profile import HEALTHY
from contracts.loading.loader import load_as
from contracts.loading.shipped import LIBRARY
from contracts.loading.uris import resolve_uri
from contracts.rng import stream
from contracts.telemetry import ProbeSamples, SampleRates, Source
from controller.detect.budget import split_budget
from controller.detect.calibration.laws import Empirical
from controller.detect.certified_drift import drift_detector, drift_score
from controller.detect.sequential.spread import normalisers, stretches
from controller.detect.streams.classical import binned_cusum
from controller.detect.streams.protocol import guaranteed_threshold, update
from scripts.studies.detection.cases import SEED, ChangeCase
from scripts.studies.detection.stream_evidence import (
    StreamPlan,
    accumulate_probes_into,
    alarms,
    initial_evidence,
    stream_plan,
    with_spread,
)

LIBRARY_FOLDER = resolve_uri(LIBRARY, "selvage")
REPLICAS, KERNELS = 12, 3
RUNS = 200
WARM_PROBES = 200
MOST_PROBES = 3000
PROBE_TOKENS = 64
#: A replica of the shipped E5 fleet serves 40 requests/s of 768 tokens on twelve replicas.
TOKENS_PER_S = 2560.0
#: Shares of a replica's tokens spent on probes.
SHARES = (0.01, 0.03, 0.1)
DRIFT = "kl_mean@full_vocab"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDose:
    """A fault at one dose. drift_nats: mean KL over slices. probes: median and 90 % quantile until an alarm.

    breaks: some probe clause is broken on some slice, on traffic prompts. seconds: at ``SHARES``, median.
    kernel_seconds: where all four replicas of a kernel have the fault and their probes are pooled.
    found: share of runs with an alarm. drift: probes until drift from the certified baseline alarms, with
    exact repeats and with 5 % repeat noise.
    """

    kernel: str
    condition: str
    drift_nats: float
    worst_slice_nats: float
    breaks: bool
    found: float
    probes_median: float
    probes_90: float
    seconds: tuple[float, ...]
    kernel_seconds: tuple[float, ...]
    drift: float
    drift_noisy: float


def shipped(kernel: str) -> KernelSamples | None:
    """Samples of a shipped profile; None if it is missing."""
    path = LIBRARY_FOLDER / "profiles" / f"{kernel}.npz"
    return load_samples(path) if path.is_file() else None


def probes_per_s(share: float) -> float:
    """Probes of 64 tokens per second and replica that cost ``share`` of its tokens."""
    return share * TOKENS_PER_S / PROBE_TOKENS


def plan_for(samples: KernelSamples, rate: float) -> StreamPlan:
    """Streams and thresholds of the shipped contract at ``rate`` probes per second and replica."""
    layout = FleetLayout(
        kernels=tuple(f"kernel-{index}" for index in range(KERNELS)),
        slices=samples.slices,
        replicas=tuple(f"replica-{index}" for index in range(REPLICAS)),
        replica_kernel=np.arange(REPLICAS, dtype=np.int64) % KERNELS,
        probe_metrics=samples.metric_names,
        known_good=0,
    )
    contract = compile_contract(
        load_as(KernelContract, LIBRARY_FOLDER / "serving-pool-full-vocab.yaml"), layout
    )
    rates = SampleRates(probes_per_s=rate, scrape_interval_s=5.0)
    return stream_plan(contract, split_budget(contract, layout, rates))


def betting_plan(samples: KernelSamples, rate: float) -> StreamPlan:
    """``plan_for`` one subject that also bets on the spread of its certified observations."""
    plan = plan_for(samples, rate)
    rows = [samples.rows("probe", name) for name in samples.slices]
    certified = np.full((1, len(rows), max(one.size for one in rows), len(samples.metric_names)), np.nan)
    for place, mine in enumerate(rows):
        certified[0, place, : mine.size] = samples.values[samples.condition(HEALTHY), mine, 0]
    return with_spread(
        plan, normalisers(plan.contract, plan.clauses, certified, stretches(samples.metric_names))
    )


def dose(kernel: str, samples: KernelSamples, condition: str) -> MeasuredDose:
    """Everything about one condition of one kernel."""
    plan = betting_plan(samples, probes_per_s(SHARES[-1]))
    probes = probes_to_alarm(samples, condition, plan)
    drift = [_mean(samples, condition, name) for name in samples.slices]
    pooled = _quantile(probes_to_alarm(samples, condition, plan, pooled=True), 0.5) * KERNELS / REPLICAS
    median, late = _quantile(probes, 0.5), _quantile(probes, 0.9)
    return MeasuredDose(
        kernel=kernel,
        condition=condition,
        drift_nats=float(np.mean(drift)),
        worst_slice_nats=max(drift),
        breaks=breaks_contract(samples, condition, plan.contract),
        found=float(np.isfinite(probes).mean()),
        probes_median=median,
        probes_90=late,
        seconds=tuple(median / probes_per_s(share) for share in SHARES),
        kernel_seconds=tuple(pooled / probes_per_s(share) for share in SHARES),
        drift=_drift(samples, condition, 0.0),
        drift_noisy=_drift(samples, condition, 0.05),
    )


def _quantile(probes: NDArray[np.float64], share: float) -> float:
    """Smallest number of probes within which ``share`` of the runs alarmed; inf if fewer did."""
    return float(np.sort(probes)[math.ceil(share * probes.size) - 1])


def _mean(samples: KernelSamples, condition: str, place: str) -> float:
    return float(np.nanmean(samples.prompt_values(DRIFT, condition, samples.rows("probe", place))))


def breaks_contract(samples: KernelSamples, condition: str, contract: CompiledContract) -> bool:
    """Some probe clause is broken on the traffic prompts of some slice it names."""
    for place, name in enumerate(contract.slices):
        rows = samples.rows("traffic", name)
        for clause in np.flatnonzero((contract.source == Source.PROBE) & contract.applies[:, place]):
            column = samples.metric_names[contract.column[clause]]
            values = samples.prompt_values(column, condition, rows)
            over = contract.sense[clause] * (values - contract.threshold[clause])
            if contract.is_rate[clause]:
                broken = np.nanmean(over > 0.0) > contract.rate_limit[clause]
            else:
                clipped = np.minimum(values, contract.clip[clause])
                broken = contract.sense[clause] * (np.nanmean(clipped) - contract.threshold[clause]) > 0.0
            if bool(broken):
                return True
    return False


def _replay(
    samples: KernelSamples, rng: np.random.Generator, count: int, runs: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Slice [count] and prompt row [runs, count] of probes: slices in turn, prompts in random order."""
    place = np.arange(count) % len(samples.slices)
    rows = np.zeros((runs, count), dtype=np.int64)
    for index, name in enumerate(samples.slices):
        own, mine = samples.rows("probe", name), np.flatnonzero(place == index)
        order = np.argsort(rng.random((runs, own.size)), axis=1)
        rows[:, mine] = own[order[:, np.arange(mine.size) % own.size]]
    return place, rows


def probes_to_alarm(
    samples: KernelSamples,
    condition: str,
    plan: StreamPlan,
    poisoned: str | None = None,
    *,
    pooled: bool = False,
) -> NDArray[np.float64]:
    """Probes of the faulty replica until its first alarm, float64 [RUNS]; inf: none, nan: alarm before.

    poisoned: the fault is in this slice only. pooled: judged as the pooled probes of a kernel.
    """
    rng = stream(SEED, "measured", condition)
    state = initial_evidence(RUNS, 1, plan)
    place, rows = _replay(samples, rng, WARM_PROBES + MOST_PROBES, RUNS)
    values = samples.values[:, :, 0, :]
    faulty, healthy = values[samples.condition(condition)], values[samples.condition(HEALTHY)]
    found, level = np.full(RUNS, np.inf), plan.kernel_threshold if pooled else plan.replica_threshold
    for step in range(WARM_PROBES + MOST_PROBES):
        sick = step >= WARM_PROBES and poisoned in (None, samples.slices[place[step]])
        seen = _probe(int(place[step]), (faulty if sick else healthy)[rows[:, step]])
        accumulate_probes_into(state, seen, seen.valid, np.zeros(1, dtype=np.int64), plan)
        raised = alarms(state, level[:1]).any(axis=(1, 2, 3)) & np.isinf(found)
        found[raised] = step + 1 - WARM_PROBES if step >= WARM_PROBES else np.nan
        if not np.isinf(found).any():
            break
    return found


def _probe(place: int, values: NDArray[np.float64]) -> ProbeSamples:
    shape = (values.shape[0], 1)
    return ProbeSamples.of_results(
        replica=np.zeros(shape, dtype=np.int64),
        slice=np.full(shape, place, dtype=np.int64),
        prompt=np.zeros(shape, dtype=np.int64),
        sampled_at_ms=np.zeros(shape),
        values=values[:, None, :],
        valid=np.ones(shape, dtype=np.bool_),
    )


def _drift(samples: KernelSamples, condition: str, noise: float) -> float:
    """Median probes until drift from the certified baseline alarms (ARL0 of 1e8, guaranteed); inf above the
    maximum.
    """
    rng = stream(SEED, "paired", condition)
    column = samples.metric_names.index(DRIFT)
    _, rows = _replay(samples, rng, 600, 100)
    certified = samples.values[samples.condition(HEALTHY), :, 0, column]
    now = samples.values[samples.condition(condition), :, 0, column]
    detector, threshold = drift_detector(), guaranteed_threshold(1e8)
    state, found = detector.initial(100), np.full(100, math.inf)
    for step in range(600):
        drawn = now[rows[:, step]] * np.exp(noise * rng.standard_normal(100))
        scores = drift_score(drawn, certified[rows[:, step]], noise)
        state, statistic = update(detector, state, scores, np.ones(100, dtype=np.bool_))
        found[(statistic >= threshold) & np.isinf(found)] = step + 1
    return _quantile(found, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisoned:
    """A fault in one slice of one replica. seconds: until the alarm, median, at the largest of ``SHARES``.

    slice_points, fleet_points: by how many percentage points the share of changed most likely tokens
    moves on that slice of that replica, and in the fleet-wide mean over all its probes.
    """

    condition: str
    slice: str
    probes_median: float
    seconds: float
    slice_points: float
    fleet_points: float


def poisoned_slice(samples: KernelSamples, condition: str, place: str) -> Poisoned:
    """One slice of one replica of twelve has a fault: time to the alarm, and the change of the mean."""
    rate = probes_per_s(SHARES[-1])
    probes = probes_to_alarm(samples, condition, betting_plan(samples, rate), poisoned=place)
    rows = samples.rows("traffic", place)
    flips = [
        float(np.mean(samples.prompt_values("top1_flip@full_vocab", name, rows)))
        for name in (condition, HEALTHY)
    ]
    points = 100.0 * (flips[0] - flips[1])
    median = _quantile(probes, 0.5)
    return Poisoned(
        condition=condition,
        slice=place,
        probes_median=median,
        seconds=median / rate,
        slice_points=points,
        fleet_points=points / (REPLICAS * len(samples.slices)),
    )


def measured_changes(kernel: str, place: str, conditions: tuple[str, ...]) -> tuple[ChangeCase, ...]:
    """Streams of a kernel's drift on one slice, in units of its healthy mean; empty where not shipped."""
    samples = shipped(kernel)
    if samples is None:
        return ()
    rows = samples.rows("probe", place)
    healthy = samples.prompt_values(DRIFT, HEALTHY, rows)
    scale = float(healthy.mean())
    before = Empirical(values=healthy / scale)
    return tuple(
        ChangeCase(
            name=f"{kernel}/{condition}",
            before=before,
            after=Empirical(values=after),
            known=binned_cusum(before.values, after),
        )
        for condition in conditions
        if condition in samples.condition_names
        for after in (samples.prompt_values(DRIFT, condition, rows) / scale,)
    )
