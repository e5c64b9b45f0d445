"""Sequential detector: every clause stream runs an e-detector with its share of the contract's budget.

Alarm: evidence that the clause is broken (sum over starts of betting e-values, ``contracts.detect``) has
reached the threshold of the stream's ARL0. The budget of false switches per slice-month is split over
replicas, kernels, slices and clauses (``contracts.detect.budget``). An alarm is latched and the evidence
starts anew; a further one restarts the recovery test.

Recovery: an e-process of the null "still broken" that starts with the alarm and ends the latch at
``confidence``. A clause on traffic, about which nobody can know more without traffic, is let go after
``expiry_s`` of silence, as with windows; the half-open return then asks anew.

| units | alarm threshold |
|---|---|
| probes | guaranteed: independent prompts, mean or rate at most the clause's limit |
| traffic and gauges | of ``traffic_factor`` times the ARL0, one unit per scrape; not guaranteed |
| limit 0 | the first unit over, outside any budget |

Scrapes of one replica follow each other's queues, so what guarantees a threshold (units that are fair given
the past) does not hold of them.

Values have no range where a clause has no clip: alarms need none, recovery takes ``UNCLIPPED_RANGE``
thresholds as the largest value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from contracts.compiled import CompiledContract, Source
from contracts.detect.budget import Budget, split_budget
from contracts.detect.clauses import Kind
from contracts.detect.recovery import SHARES
from contracts.detect.streams import (
    Evidence,
    StreamPlan,
    alarms,
    fold_probes_into,
    fold_units,
    initial_evidence,
    relative_excess,
    reset,
    stream_plan,
    tick_units,
)
from controller.detectors import (
    COUNT,
    Arrivals,
    DetectorState,
    Sums,
    Verdicts,
    from_traffic,
)
from controller.sequential_compiled import heal_probes, heal_units
from controller.setup import FleetSetup

#: Largest value of an unclipped clause, in thresholds, as far as recovery is concerned.
UNCLIPPED_RANGE = 50.0

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialDetector:
    """Detector of ``plan``'s contract and fleet; ``sequential_detector`` builds it.

    upper: float64 [C], largest unit; gain: float64 [C], of one clean unit where the limit is 0. memory_s:
    time constant of the sums that siblings are compared by. See the module for the rest.
    """

    plan: StreamPlan
    upper: Floats
    gain: Floats
    confidence: float
    memory_s: float
    expiry_s: float

    @property
    def by_unit(self) -> bool:
        """Every unit when it comes."""
        return True

    def initial(self, batch: int, units: int, contract: CompiledContract) -> DetectorState:  # noqa: ARG002
        """No evidence. ``health``: of recovery; ``recent``: sums that fade; the rest as in ``Evidence``."""
        evidence = initial_evidence(batch, units, self.plan)
        shape = evidence.statistic.shape
        return {
            "evidence": evidence.evidence,
            "statistic": evidence.statistic,
            "since": evidence.since,
            "alarm": np.zeros(shape, dtype=np.bool_),
            "excess": np.zeros(shape),
            "health": np.ones((*shape, len(SHARES))),
            "recent": np.zeros((*shape, 4)),
            "silent_s": np.zeros(shape),
        }

    def forget(self, state: DetectorState, mask: NDArray[np.bool_]) -> DetectorState:
        """See the protocol."""
        blank = self.initial(1, 1, self.plan.contract)
        return {
            name: np.where(mask.reshape(mask.shape + (1,) * (array.ndim - 4)), blank[name].ravel()[0], array)
            for name, array in state.items()
        }

    def update(
        self, state: DetectorState, sums: Sums, closed: NDArray[np.bool_], contract: CompiledContract,  # noqa: ARG002
        arrived: Arrivals | None = None,
    ) -> tuple[Verdicts, DetectorState]:  # fmt: skip
        """Take in the units of one tick; see the protocol."""
        if arrived is None:
            raise ValueError("a sequential detector judges arrivals, not sums of windows")
        units = _traffic_units(arrived, self.plan)
        evidence = self._against(state, arrived, units)
        rung = alarms(evidence, self.plan.kernel_threshold if arrived.pooled else self.plan.replica_threshold)
        excess = np.asarray(state["excess"], dtype=np.float64)
        if bool(rung.any()):
            excess = np.where(rung, relative_excess(evidence, self.plan), excess)
            evidence = reset(evidence, rung)
        latched = np.asarray(state["alarm"], dtype=np.bool_)
        wanted = latched | arrived.doubted
        health, inside = self._recover(state, arrived, units, rung, wanted)
        silent_s, expired = self._silence(state, arrived, wanted & ~rung)
        inside = inside | expired
        alarm = rung | (latched & ~inside)
        excess = np.where(alarm, excess, 0.0)
        recent = _faded(np.asarray(state["recent"], dtype=np.float64), arrived, self.memory_s)
        after: DetectorState = {
            "evidence": evidence.evidence, "statistic": evidence.statistic, "since": evidence.since,
            "alarm": alarm, "excess": excess, "health": health, "recent": recent, "silent_s": silent_s,
        }  # fmt: skip
        fresh = (arrived.sums[..., COUNT] > 0.0) | rung | expired
        judged = np.where(recent[..., COUNT, None] >= 1.0, recent, 0.0)
        return Verdicts(alarm=alarm, excess=excess, inside=inside, fresh=fresh, judged=judged), after

    def _silence(self, state: DetectorState, arrived: Arrivals, wanted: Flags) -> tuple[Floats, Flags]:
        """How long each stream has been silent, and which are let go because only traffic could tell."""
        older_s = np.asarray(state["silent_s"], dtype=np.float64) + arrived.since_s[:, None, None, None]
        silent_s = np.where(arrived.sums[..., COUNT] > 0.0, 0.0, older_s)
        return silent_s, (silent_s >= self.expiry_s) & from_traffic(self.plan.contract) & wanted

    def _against(
        self, state: DetectorState, arrived: Arrivals, units: tuple[Floats, Flags] | None
    ) -> Evidence:
        """Evidence that clauses are broken, with this tick's units."""
        evidence = Evidence(
            evidence=np.array(state["evidence"], dtype=np.float64),
            statistic=np.array(state["statistic"], dtype=np.float64),
            since=np.array(state["since"], dtype=np.float64),
        )
        fold_probes_into(evidence, arrived.probes, arrived.heard, arrived.unit_of, self.plan)
        return evidence if units is None else fold_units(evidence, *units, self.plan)

    def _recover(
        self, state: DetectorState, arrived: Arrivals, units: tuple[Floats, Flags] | None, rung: Flags,
        wanted: Flags,
    ) -> tuple[Floats, Flags]:  # fmt: skip
        """Evidence of health and where it suffices; it begins with the alarm, and anew with a further one."""
        health = np.asarray(state["health"], dtype=np.float64)
        going = wanted & ~rung
        if not bool(wanted.any()):
            return health, wanted
        health = np.where(going[..., None], health, 1.0)
        self._heal(health, going, arrived, units)
        return health, going & (health.mean(axis=-1) >= 1.0 / (1.0 - self.confidence))

    def _heal(
        self, health: Floats, going: Flags, arrived: Arrivals, units: tuple[Floats, Flags] | None
    ) -> None:
        plan, plain, probes = self.plan, np.ascontiguousarray, arrived.probes
        contract, clauses, shares = plan.contract, plan.clauses, np.array(SHARES)
        heal_probes(
            health, going, arrived.unit_of, arrived.heard, plain(probes.replica), plain(probes.slice),
            plain(probes.values), contract.source, contract.column, contract.threshold, contract.sense,
            plan.applies, clauses.kind, clauses.is_rate, clauses.mirrored, clauses.upper, clauses.clip,
            clauses.null_mean, self.upper, self.gain, shares,
        )  # fmt: skip
        if units is not None:
            heal_units(
                health, going, *units, plan.applies, clauses.kind, clauses.null_mean, self.upper, self.gain,
                shares,
            )  # fmt: skip


def _traffic_units(arrived: Arrivals, plan: StreamPlan) -> tuple[Floats, Flags] | None:
    """One unit per stream of the clauses on traffic and gauges, None where none arrived."""
    watched = plan.contract.source != Source.PROBE
    present = (arrived.sums[..., COUNT] > 0.0) & watched
    if not bool(present.any()):
        return None
    value, _ = tick_units(arrived.sums, plan)
    return np.ascontiguousarray(value), present


def _faded(recent: Sums, arrived: Arrivals, memory_s: float) -> Sums:
    """Sums in which older units count less and less, this tick's in full."""
    kept = np.exp(-arrived.since_s / memory_s)[:, None, None, None, None]
    return np.asarray(recent * kept + arrived.sums)


def sequential_detector(
    fleet: FleetSetup, *, confidence: float = 0.95, traffic_factor: float = 14.0,
    budget_per_slice_month: float | None = None, expiry_windows: float = 5.0,
) -> SequentialDetector:  # fmt: skip
    """Detector of ``fleet`` whose false switches per slice-month stay within the contract's budget.

    confidence: of recovery. traffic_factor: how many times the ARL0 of a clause on traffic is raised, for
    its units are not independent. budget_per_slice_month: instead of the contract's.
    """
    contract = fleet.contract
    allowed = budget_per_slice_month or contract.false_switch_budget_per_slice_month
    split = split_budget(contract, fleet.layout, fleet.rates, Budget(per_slice_month=allowed))
    plan = stream_plan(contract, split)
    raised = np.where(plan.clauses.guaranteed, 0.0, math.log(traffic_factor))
    clauses = plan.clauses
    at_once = clauses.kind == Kind.AT_ONCE
    plan = replace(
        plan,
        replica_threshold=plan.replica_threshold + np.where(at_once, 0.0, raised),
        kernel_threshold=plan.kernel_threshold + np.where(at_once, 0.0, raised),
    )
    return SequentialDetector(
        plan=plan,
        upper=_largest_unit(plan),
        gain=np.full(clauses.kind.shape, (1.0 - confidence) ** (-1.0 / contract.min_samples)),
        confidence=confidence,
        memory_s=contract.window_s,
        expiry_s=expiry_windows * contract.window_s,
    )


def _largest_unit(plan: StreamPlan) -> Floats:
    """float64 [C]: range of the units that clauses bet on; see ``UNCLIPPED_RANGE``."""
    clauses = plan.clauses
    known = np.where(np.isfinite(clauses.clip), clauses.clip, UNCLIPPED_RANGE * clauses.null_mean)
    known = np.where(clauses.mirrored, clauses.upper, known)
    shares = clauses.is_rate | (plan.contract.source != Source.PROBE)
    known = np.where(shares, 1.0, known)
    return np.where(known > clauses.null_mean, known, UNCLIPPED_RANGE * clauses.null_mean)
