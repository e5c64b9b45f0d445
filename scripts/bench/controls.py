"""False alarms on controls without faults: ``selvage bench controls``.

Telemetry only: fleets of twelve replicas of two measured kernels answer one probe per second each, round
robin over five slices, replayed from the healthy values of the probe prompts; no request is simulated. All
probe clauses of the shipped ``serving-pool`` contract run on replicas and on kernels, with the bets and the
thresholds that the controller's detector has by default, over 1,000 slice-days. Ordinary change is included:
one probe in fifty is lost, and every replica restarts once a day, which restarts its streams.

``selvage bench controls --load 60,80,95,110`` runs whole fleets instead, with requests, at these shares of
the fleet's true capacity, and counts false switches: ``scripts.studies.load_controls``.

Two configurations: ``healthy``, as measured, each replica walking through its prompts; and ``at_limit``,
where drifts are scaled until the worst clause of each slice stands at its limit, and prompts are drawn
independently: the least favourable null, under which the budget must still hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from contracts.assess.samples import KernelSamples
from contracts.documents.profile import HEALTHY
from contracts.rng import stream
from contracts.telemetry import ProbeSamples, Source
from contracts.units import SECONDS_PER_DAY, SECONDS_PER_MONTH
from controller.detect.sequential.spread import normalisers, stretches
from scripts.studies.detection.measured import REPLICAS, plan_for, shipped
from scripts.studies.detection.speed import warm
from scripts.studies.detection.stream_evidence import (
    StreamPlan,
    accumulate_probes_into,
    alarms,
    initial_evidence,
    reset,
    with_spread,
)
from scripts.studies.load_controls import DAYS as LOAD_DAYS
from scripts.studies.load_controls import POLICIES, load_controls

Floats = NDArray[np.float64]
SEED = 5
FLEETS, DAYS = 100, 2
PROBES_PER_S, LOST = 1.0, 0.02
_ROUND = 5  # seconds between looks: one probe of every slice
KERNELS, SLICES = ("bf16", "w8a8"), 5
#: Kernels of a fleet, the last two with one profile, and the kernel of each replica.
_KERNELS_USED = 3
_KERNEL_OF = np.arange(REPLICAS, dtype=np.int64) % _KERNELS_USED
#: Looks between two restarts: each replica restarts once a day.
_RESTART_EVERY = int(SECONDS_PER_DAY / _ROUND / REPLICAS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Alarms on fleets without faults."""

    replica_alarms: int
    kernel_alarms: int
    slice_months: float

    @property
    def per_slice_month(self) -> float:
        """Alarms that could move a slice: a replica's moves every slice, a kernel's its own."""
        return (self.kernel_alarms + self.replica_alarms * SLICES) / self.slice_months

    @property
    def upper_95(self) -> float:
        """Upper 95 % limit: exact Poisson limits of both counts at 97.5 %, weighed and added."""
        limits = [float(gammaincinv(n + 1, 0.975)) for n in (self.kernel_alarms, self.replica_alarms)]
        return (limits[0] + SLICES * limits[1]) / self.slice_months


def run(load: str = "", policies: str = "", days: str = "") -> dict[str, object]:
    """Both configurations, flat; with ``load`` whole fleets at these loads instead.

    load: percent of what the fleet carries, policies: names, both with commas between; days: slice-days each.
    """
    if load:
        chosen = tuple(policies.split(",")) if policies else POLICIES
        return load_controls(tuple(load.split(",")), chosen, float(days or LOAD_DAYS))
    samples = [shipped(name) for name in KERNELS]
    have = [one for one in samples if one is not None]
    flat: dict[str, object] = {"seed": SEED, "fleets": FLEETS, "days": DAYS, "budget_per_slice_month": 1.0}
    if len(have) < len(KERNELS):
        return flat | {"not_measured": "the shipped profiles of bf16 and w8a8 are not there"}
    warm()
    plan = plan_for(have[0], PROBES_PER_S)
    for configuration in ("healthy", "at_limit"):
        found = count_alarms(have, plan, at_limit=configuration == "at_limit")
        flat |= {
            f"{configuration}/slice_days": round(found.slice_months * 30.0, 1),
            f"{configuration}/replica_alarms": found.replica_alarms,
            f"{configuration}/kernel_alarms": found.kernel_alarms,
            f"{configuration}/per_slice_month": round(found.per_slice_month, 4),
            f"{configuration}/per_slice_month_upper_95": round(found.upper_95, 4),
        }
    return flat


def count_alarms(samples: list[KernelSamples], plan: StreamPlan, *, at_limit: bool) -> Count:
    """Alarms of all streams of all fleets; a stream restarts after an alarm and with its replica."""
    rng = stream(SEED, "controls")
    of_kernel = _of_kernels(samples, plan, at_limit)
    table = of_kernel[_KERNEL_OF]
    psi = normalisers(plan.contract, plan.clauses, of_kernel, stretches(samples[0].metric_names))
    plan, pooled_plan = with_spread(plan, psi[_KERNEL_OF]), with_spread(plan, psi)
    order = np.argsort(rng.random((FLEETS, *table.shape[:3])), axis=3)
    own, pooled = initial_evidence(FLEETS, REPLICAS, plan), initial_evidence(FLEETS, _KERNELS_USED, plan)
    replica_alarms = kernel_alarms = 0
    for turn in range(int(DAYS * SECONDS_PER_DAY / _ROUND)):
        received = rng.random((FLEETS, REPLICAS * _ROUND)) >= LOST
        walk = order[..., turn % order.shape[3]]
        chosen = rng.integers(table.shape[2], size=walk.shape) if at_limit else walk
        seen = _probes(table, chosen.reshape(FLEETS, -1), received)
        accumulate_probes_into(own, seen, seen.valid, np.arange(REPLICAS, dtype=np.int64), plan)
        accumulate_probes_into(pooled, seen, seen.valid, _KERNEL_OF, pooled_plan)
        raised, kernel_raised = alarms(own, plan.replica_threshold), alarms(pooled, plan.kernel_threshold)
        if raised.any() or kernel_raised.any():
            # Several clauses in alarm for one replica or kernel at once are one switch.
            replica_alarms += int(raised.any(axis=(2, 3)).sum())
            kernel_alarms += int(kernel_raised.any(axis=3).sum())
            own, pooled = reset(own, raised), reset(pooled, kernel_raised)
        if turn % _RESTART_EVERY == 0:
            own = reset(own, _of_replica(own.statistic, (turn // _RESTART_EVERY) % REPLICAS))
    months = FLEETS * table.shape[1] * DAYS * SECONDS_PER_DAY / SECONDS_PER_MONTH
    return Count(replica_alarms=replica_alarms, kernel_alarms=kernel_alarms, slice_months=months)


def _of_kernels(samples: list[KernelSamples], plan: StreamPlan, at_limit: bool) -> Floats:
    """Healthy values of the kernels in use, float64 [K, S, n, M]; the last two have one profile."""
    tables = [_values(one, plan, at_limit) for one in samples]
    return np.stack([tables[min(kernel, 1)] for kernel in range(_KERNELS_USED)])


def _of_replica(statistic: Floats, replica: int) -> NDArray[np.bool_]:
    """Mask of the streams of ``statistic`` [B, R, ...] that belong to ``replica``."""
    chosen = np.zeros(statistic.shape, dtype=np.bool_)
    chosen[:, replica] = True
    return chosen


def _values(samples: KernelSamples, plan: StreamPlan, at_limit: bool) -> Floats:
    """Healthy values of the probe prompts, float64 [S, n, M]; slices with fewer prompts repeat theirs."""
    values = samples.values[samples.condition(HEALTHY), :, 0, :]
    rows = [samples.rows("probe", name) for name in samples.slices]
    most = max(one.size for one in rows)
    blocks = np.stack([values[np.resize(one, most)] for one in rows])
    if not at_limit:
        return blocks
    return np.stack([_scaled(block, place, plan) for place, block in enumerate(blocks)])


def _scaled(block: Floats, place: int, plan: StreamPlan) -> Floats:
    """Every watched column of one slice scaled alike, until the worst mean clause stands at its limit."""
    contract, clauses = plan.contract, plan.clauses
    watched = (contract.source == Source.PROBE) & contract.applies[:, place] & ~clauses.mirrored
    low, high = 0.0, 1e6
    for _ in range(60):
        middle = np.sqrt(max(low, 1e-6) * high)
        worst = max(
            _ratio(block[:, contract.column[c]] * middle, int(c), plan) for c in np.flatnonzero(watched)
        )
        low, high = (middle, high) if worst <= 1.0 else (low, middle)
    scaled = block.copy()
    columns = np.unique(contract.column[watched])
    scaled[:, columns] *= low
    return scaled


def _ratio(values: Floats, clause: int, plan: StreamPlan) -> float:
    """Mean of the clause's observations over its null mean."""
    contract, clauses = plan.contract, plan.clauses
    if clauses.is_rate[clause]:
        over = contract.sense[clause] * (values - contract.threshold[clause]) > 0.0
        return float(over.mean() / max(contract.rate_limit[clause], 1e-12))
    return float(np.minimum(values, clauses.clip[clause]).mean() / clauses.null_mean[clause])


def _probes(table: Floats, chosen: NDArray[np.int64], received: NDArray[np.bool_]) -> ProbeSamples:
    """One round: every replica answers one probe of every slice, prompt ``chosen`` int64 [B, R * S]."""
    replicas, slices = table.shape[:2]
    replica = np.repeat(np.arange(replicas, dtype=np.int64), slices)
    place = np.tile(np.arange(slices, dtype=np.int64), replicas)
    shape = chosen.shape
    return ProbeSamples.of_results(
        replica=np.broadcast_to(replica, shape).copy(),
        slice=np.broadcast_to(place, shape).copy(),
        prompt=chosen,
        sampled_at_ms=np.zeros(shape),
        values=table[replica, place, chosen],
        valid=received,
    )
