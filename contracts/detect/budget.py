"""False switches per slice-month, split into an ARL0 for every stream, as a record that can be reported.

A slice's row can be moved by an alarm of any of its streams: each replica and each kernel, for each clause.
If stream i alarms at most ``b_i`` times a month under its null, and the ``b_i`` of a slice sum to the
budget, then so do false switches, whatever depends on what (a union bound). ``b_i`` times a stream's
units per month gives ``ARL0_i = units per month / b_i``.

Each of the two kinds of stream gets its share of the budget, split evenly over clauses and then over the
streams of the kind. A quarantined replica leaves every slice at once, so an alarm of a replica on one slice
is a false switch of all slices: its streams share the budget of one slice among all slices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from contracts.compiled import CompiledContract, Source
from contracts.detect.calibrate import guaranteed_threshold
from contracts.detect.clauses import Kind, plan_clauses
from contracts.detect.protocol import Floats
from contracts.layout import FleetLayout

MONTH_S = 30.0 * 86400.0
#: A share of the budget that leaves less than an alarm in as many units is none: the stream is not watched.
MOST_ARL0 = 1e18


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a contract allows: false switches per slice-month, and the share for pooled kernel streams.

    A kernel that pools n replicas gathers evidence n times as fast, so a smaller share costs it little time:
    the sum of both delays is least at a share of 1 / (1 + n).
    """

    per_slice_month: float = 1.0
    kernel_share: float = 0.2

    def __post_init__(self) -> None:
        if not (0.0 < self.per_slice_month < math.inf and 0.0 <= self.kernel_share <= 1.0):
            raise ValueError(f"expected a budget > 0 and a share within 0..1, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRates:
    """Units of one replica: probes per second, round robin over the slices, and time between scrapes."""

    probes_per_s: float
    scrape_interval_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    """What the streams of one clause on one slice are allowed; ``unit`` is replica or kernel.

    samples_per_s, alarms_per_month, arl0: of the stream with the highest rate. threshold: guaranteed, of the
    log-evidence; ``guaranteed``: it needs no calibration.
    """

    clause: str
    slice: str
    unit: str
    streams: int
    samples_per_s: float
    alarms_per_month: float
    arl0: float
    threshold: float
    guaranteed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSplit:
    """The split. replica_arl0 float64 [R, S, C], kernel_arl0 [K, S, C], in samples (inf: no stream there).

    at_once: clauses that alarm at their first unit over the threshold, outside any budget.
    """

    budget: Budget
    replica_arl0: Floats
    kernel_arl0: Floats
    lines: tuple[BudgetLine, ...]
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
    rate = np.where(
        contract.source == Source.PROBE, rates.probes_per_s / slices, 1.0 / rates.scrape_interval_s
    )
    of_kernel = np.bincount(layout.replica_kernel, minlength=kernels).astype(np.float64)
    replica_alarms = allowed.per_slice_month * (1.0 - allowed.kernel_share) / (clauses * replicas * slices)
    kernel_alarms = allowed.per_slice_month * allowed.kernel_share / (clauses * kernels)
    replica_arl0 = _arl0(np.broadcast_to(rate, (replicas, 1, rate.size)), replica_alarms, watched)
    kernel_arl0 = _arl0(of_kernel[:, None, None] * rate, kernel_alarms, watched)
    parts = (
        ("replica", replicas, rate, replica_alarms, replica_arl0),
        ("kernel", kernels, of_kernel.max() * rate, kernel_alarms, kernel_arl0),
    )
    lines = tuple(
        _line(
            contract, s, c, unit, count, float(speed[c]), float(alarms[s, 0]), arl0, bool(plan.guaranteed[c])
        )
        for unit, count, speed, alarms, arl0 in parts
        for s, c in zip(*np.nonzero(watched), strict=True)
    )
    ids = np.array(contract.clause_ids)
    at_once = tuple(str(name) for name in ids[plan.kind == Kind.AT_ONCE])
    return BudgetSplit(
        budget=allowed, replica_arl0=replica_arl0, kernel_arl0=kernel_arl0, lines=lines, at_once=at_once
    )


def _arl0(rate: Floats, alarms: Floats, watched: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> Floats:
    """float64 [U, S, C] from units per second [U, 1, C] and alarms per month [S, 1]; inf: no stream."""
    with np.errstate(divide="ignore", over="ignore"):
        samples = np.maximum(rate * MONTH_S / alarms[None], 2.0)
    return np.where(watched[None] & (samples < MOST_ARL0), samples, np.inf)


def _line(
    contract: CompiledContract, place: int, clause: int, unit: str, count: int, speed: float, alarms: float,
    arl0: Floats, guaranteed: bool,
) -> BudgetLine:  # fmt: skip
    largest = float(arl0[:, place, clause].max())
    threshold = guaranteed_threshold(largest) if math.isfinite(largest) else math.inf
    return BudgetLine(
        clause=contract.clause_ids[clause], slice=contract.slices[place], unit=unit, streams=count,
        samples_per_s=speed, alarms_per_month=alarms, arl0=largest,
        threshold=threshold, guaranteed=guaranteed,
    )  # fmt: skip
