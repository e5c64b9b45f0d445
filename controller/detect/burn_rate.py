"""Multi-window burn-rate alerts on error budgets, after the SRE workbook, as a detector.

Burn is the rate at which a budget is spent, over the allowed rate: share over limit for a rate clause, mean
over threshold for a mean clause, so a clause just kept has burn 1. A tier alerts while the burn over its long
window *and* over its short one, a twelfth of it, reaches the tier's factor. An alert without data ends.

| tier of the workbook (30 days) | factor | long window | short window | here, for ``hour_s`` = 60 s |
|---|---|---|---|---|
| page | 14.4 | 1 h | 5 min | 60 s, 5 s |
| page | 6 | 6 h | 30 min | 6 min, 30 s |
| ticket | 1 | 3 d | 6 h | 72 min, 6 min |

The workbook's month is 12 hours here, because its hour is the contract's window. Windows that are not full
yet are judged on their content, like a query over a younger time series, from ``least_observations`` on.
There is no significance test: few observations, or a budget that a healthy kernel nearly spends, give false
alerts.

Source: Beyer et al., The Site Reliability Workbook (O'Reilly 2018), chapter 5, "Alerting on SLOs".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.units import CLOCK_SLACK_S
from controller.detect.burn_rate_pass import Budgets, Tier, add_to_open_bins, end_bins, find_kept, sum_up
from controller.detect.clauses import ClausePlan, applies, needs_traffic
from controller.detect.detector import (
    AlarmState,
    DetectorState,
    EvidenceBatch,
    flags,
    floats,
    forgotten,
    latched,
)
from controller.detect.sums import Sums

#: Factors of the workbook's alerts and their long windows, in hours; short windows are a twelfth.
FACTORS = (14.4, 6.0, 1.0)
LONG_HOURS = (1.0, 6.0, 72.0)
BINS = 12

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnRateDetector:
    """Multi-window, multi-burn-rate alerts on every clause stream; see the module.

    hour_s: duration of the workbook's hour. least_observations: fewer in a long window give no alert.
    """

    clauses: ClausePlan
    hour_s: float
    least_observations: float = 10.0

    @property
    def by_observation(self) -> bool:
        """True: bins are shorter than the contract's window."""
        return True

    def initial(self, batch: int, subjects: int, contract: CompiledContract) -> DetectorState:
        """Empty bins. ``bins<i>``: float64 [B, U, S, C, 12, 4], sums of tier i, oldest first.

        ``recent``: float64 [B, U, S, C, 4], sums over all bins of the shortest tier.
        """
        shape = (batch, subjects, len(contract.slices), len(contract.clause_ids))
        tiers = len(FACTORS)
        return {
            **{f"bins{tier}": np.zeros((*shape, BINS, 4)) for tier in range(tiers)},
            "running": np.zeros((*shape, tiers, 4)),
            "age_s": np.zeros((*shape, tiers)),
            "burning": np.zeros((*shape, tiers)),
            "recent": np.zeros((*shape, 4)),
            "alarm": np.zeros(shape, dtype=np.bool_),
            "excess": np.zeros(shape),
        }

    def forget(self, state: DetectorState, mask: NDArray[np.bool_]) -> DetectorState:
        """See the protocol."""
        return forgotten(state, mask)

    def evidence_ratio(self, state: DetectorState, contract: CompiledContract) -> NDArray[np.float64]:
        """0 or 1: a bin gives no evidence before it ends."""
        return latched(state, contract)

    def update(
        self,
        state: DetectorState,
        sums: Sums | None,  # noqa: ARG002
        closed: NDArray[np.bool_],  # noqa: ARG002
        contract: CompiledContract,
        arrived: EvidenceBatch | None = None,
        *,
        consume: bool = False,
    ) -> tuple[AlarmState, DetectorState]:
        """Add this tick to the bins and judge the tiers whose bin ends; see the protocol."""
        if arrived is None:
            raise ValueError("burn rates are judged by arrivals, not by sums of windows")
        after, budgets = _owned(state, ("running", "age_s"), consume), self._budgets(contract)
        add_to_open_bins(
            after["running"], after["age_s"], np.ascontiguousarray(arrived.sums), arrived.since_s
        )
        ended = np.zeros(arrived.sums.shape[:-1], dtype=np.bool_)
        for tier in range(len(FACTORS)):
            after = self._end_bins(after, tier, ended, budgets, consume=consume)
        if bool(ended.any()):
            after.update(_judged(after))
        alarm, recent = flags(after, "alarm"), floats(after, "recent")
        kept = np.empty(alarm.shape, dtype=np.bool_)
        find_kept(kept, budgets, recent, needs_traffic(contract), self.least_observations)
        return AlarmState(
            alarm=alarm, excess=floats(after, "excess"), inside=~alarm & kept, fresh=ended, judged=recent
        ), after

    def _end_bins(
        self, after: DetectorState, tier: int, ended: Flags, budgets: tuple[Any, ...], *, consume: bool
    ) -> DetectorState:
        """Close the full bins of ``tier``, judge them, and mark them in ``ended`` [B, U, S, C]."""
        bin_s = LONG_HOURS[tier] * self.hour_s / BINS - CLOCK_SLACK_S
        if not bool((floats(after, "age_s")[..., tier] >= bin_s).any()):
            return after
        bins = f"bins{tier}"
        after = _owned(after, (bins, "burning"), consume)
        memory = Tier(
            bins=floats(after, bins),
            running=floats(after, "running"),
            age_s=floats(after, "age_s"),
            burning=floats(after, "burning"),
            ended=ended,
        )
        end_bins(tuple(memory), budgets, tier, bin_s, FACTORS[tier], self.least_observations)
        return after

    def _budgets(self, contract: CompiledContract) -> tuple[Any, ...]:
        """The clauses as a plain tuple for the compiled passes."""
        clauses = self.clauses
        budgets = Budgets(
            kind=clauses.kind,
            is_rate=clauses.is_rate,
            mirrored=clauses.mirrored,
            upper=clauses.upper,
            null_mean=clauses.null_mean,
            applies=applies(contract),
        )
        return tuple(budgets)


def _owned(state: DetectorState, names: tuple[str, ...], consume: bool) -> DetectorState:
    """``state`` with writable arrays ``names``: copies, unless the state may be consumed."""
    own = {name: state[name] if consume else state[name].copy() for name in names}
    return {**state, **own}


def _judged(after: DetectorState) -> DetectorState:
    """Arrays that change only when a bin ends: alarm, excess and the sums of the shortest tier."""
    burning, bins = floats(after, "burning"), floats(after, "bins0")
    worst = np.maximum.reduce([burning[..., tier] for tier in range(len(FACTORS))])
    recent = np.empty((*bins.shape[:4], bins.shape[5]))
    sum_up(recent, bins)
    return {"alarm": worst > 0.0, "excess": np.maximum(worst - 1.0, 0.0), "recent": recent}
