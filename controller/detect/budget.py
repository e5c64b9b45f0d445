"""Budget of false switches per slice-month, split into an ARL0 for every stream, as a reportable record.

A slice's row can be moved by an alarm of any of its streams: each replica and each kernel, for each clause.
On traffic, a replica has one stream per clause over all its requests; it gets the shares of all slices that
the clause applies to. Let stream i raise at most ``b_i`` alarms a month under its null, and let the ``b_i``
of a slice sum to the budget. Then false switches stay within the budget under any dependence (union bound).
The ARL0 follows as ``ARL0_i = observations per month / b_i``.

Each of the two kinds of stream gets its share of the budget, split evenly over clauses and then over the
streams of the kind. A quarantined replica leaves every slice at once, so an alarm of a replica on one slice
is a false switch of all slices: its streams share the budget of one slice among all slices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from contracts.compiled.contract import CompiledContract, FleetLayout
from contracts.telemetry import SampleRates, Source
from contracts.units import SECONDS_PER_MONTH
from controller.detect.clauses import Kind, from_traffic, plan_clauses, replica_places
from controller.detect.streams.protocol import Floats, guaranteed_threshold

#: Largest ARL0; a stream whose share of the budget would need a larger one is not watched.
MOST_ARL0 = 1e18


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Allowed false switches per slice-month, and the share for pooled kernel streams.

    A kernel that pools n replicas gathers evidence n times as fast, so a smaller share costs it little time:
    the sum of both delays is least at a share of 1 / (1 + n).
    """

    per_slice_month: float = 1.0
    kernel_share: float = 0.2

    def __post_init__(self) -> None:
        if not (0.0 < self.per_slice_month < math.inf and 0.0 <= self.kernel_share <= 1.0):
            raise ValueError(f"expected a budget > 0 and a share within 0..1, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    """Budget of the streams of one clause on one slice."""

    clause: str
    slice: str
    #: Subjects of the streams: "replica" or "kernel".
    unit: str
    #: Number of streams.
    streams: int
    #: Observations of the stream with the highest rate.
    samples_per_s: float
    #: Allowed false alarms of each stream.
    alarms_per_month: float
    #: Mean run length to a false alarm, in observations of that stream.
    arl0: float
    #: Guaranteed threshold of the log-evidence.
    threshold: float
    #: The threshold needs no calibration.
    guaranteed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSplit:
    """A budget and its split over R replicas, K kernels, S slices and C clauses."""

    budget: Budget
    #: float64 [R, S, C], in observations (inf: no stream there).
    replica_arl0: Floats
    #: float64 [K, S, C], the same of kernels.
    kernel_arl0: Floats
    lines: tuple[BudgetLine, ...]
    #: Clauses that alarm at their first observation over the threshold, outside any budget.
    at_once: tuple[str, ...]

    @property
    def alarms_per_slice_month(self) -> float:
        """Largest sum of allowed alarms that can move one slice; at most the budget."""
        slices = {line.slice for line in self.lines}
        everywhere = sum(
            line.streams * line.alarms_per_month for line in self.lines if line.unit == "replica"
        )
        own = [
            sum(
                line.streams * line.alarms_per_month
                for line in self.lines
                if line.slice == name and line.unit == "kernel"
            )
            for name in slices
        ]
        return everywhere + max(own, default=0.0)


def split_budget(
    contract: CompiledContract, layout: FleetLayout, rates: SampleRates, budget: Budget | None = None
) -> BudgetSplit:
    """ARL0 of every stream of ``layout`` under ``contract``; default budget: one per slice-month."""
    allowed = budget or Budget()
    kernels, slices, replicas = layout.shape
    plan = plan_clauses(contract)
    watched = contract.applies.T & (plan.kind == Kind.BETTING)  # [S, C]
    clauses = np.maximum(watched.sum(axis=1), 1)[:, None]
    replica_rate, kernel_rate = _rates(contract, layout, rates)
    each = allowed.per_slice_month * (1.0 - allowed.kernel_share) / (clauses * replicas * slices)
    replica_alarms = np.where(from_traffic(contract), (each * watched).sum(axis=0), each)
    kernel_alarms = np.broadcast_to(
        allowed.per_slice_month * allowed.kernel_share / (clauses * kernels), watched.shape
    )
    booked = watched & replica_places(contract)
    replica_arl0 = _arl0(np.tile(replica_rate, (replicas, 1, 1)), replica_alarms, booked)
    kernel_arl0 = _arl0(kernel_rate[:, None], kernel_alarms, watched)
    parts = (
        _Part("replica", replicas, replica_rate, replica_alarms, replica_arl0),
        _Part("kernel", kernels, kernel_rate.max(axis=0), kernel_alarms, kernel_arl0),
    )
    lines = tuple(
        _line(contract, part, s, c, bool(plan.guaranteed[c]))
        for part, places in zip(parts, (booked, watched), strict=True)
        for s, c in zip(*np.nonzero(places), strict=True)
    )
    ids = np.array(contract.clause_ids)
    at_once = tuple(str(name) for name in ids[plan.kind == Kind.AT_ONCE])
    return BudgetSplit(
        budget=allowed, replica_arl0=replica_arl0, kernel_arl0=kernel_arl0, lines=lines, at_once=at_once
    )


def _rates(contract: CompiledContract, layout: FleetLayout, rates: SampleRates) -> tuple[Floats, Floats]:
    """Observations per second of a replica's streams [C], and of each kernel's [K, C]."""
    kernels, slices, _ = layout.shape
    at_gateway = 1.0 / rates.gateway_interval_s
    replica = np.where(
        contract.source == Source.PROBE, rates.probes_per_s / slices, 1.0 / rates.scrape_interval_s
    )
    replica = np.where(contract.source == Source.FAILED, at_gateway, replica)
    members = np.bincount(layout.replica_kernel, minlength=kernels).astype(np.float64)
    return replica, np.where(from_traffic(contract), 1.0, members[:, None]) * replica


def _arl0(rate: Floats, alarms: Floats, watched: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> Floats:
    """[U, S, C] from observations per second [U, 1, C], alarms per month [S, C]; inf: no stream."""
    with np.errstate(divide="ignore", over="ignore"):
        samples = np.maximum(rate * SECONDS_PER_MONTH / alarms[None], 2.0)
    return np.where(watched[None] & (samples < MOST_ARL0), samples, np.inf)


class _Part(NamedTuple):
    """Streams of all replicas, or of all kernels."""

    unit: str
    streams: int
    samples_per_s: Floats  # [C], of the stream with the highest rate
    alarms_per_month: Floats  # [S, C]
    arl0: Floats  # [U, S, C], in samples


def _line(contract: CompiledContract, part: _Part, place: int, clause: int, guaranteed: bool) -> BudgetLine:
    largest = float(part.arl0[:, place, clause].max())
    return BudgetLine(
        clause=contract.clause_ids[clause],
        slice=contract.slices[place],
        unit=part.unit,
        streams=part.streams,
        samples_per_s=float(part.samples_per_s[clause]),
        alarms_per_month=float(part.alarms_per_month[place, clause]),
        arl0=largest,
        threshold=guaranteed_threshold(largest) if math.isfinite(largest) else math.inf,
        guaranteed=guaranteed,
    )
