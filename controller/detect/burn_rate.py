"""Burn rate: how operators alert on an error budget, after the SRE workbook, as a detector.

Burn is how many times faster than allowed a budget is spent: share over the limit of a rate clause, mean
over the threshold of a mean clause, so 1 is a clause just kept. A tier alerts while the burn over its long
window *and* over a twelfth of it, the short one, reaches the tier's factor; an alert without data ends.

| tier of the workbook (30 days) | factor | long window | short window | here, for ``hour_s`` = 60 s |
|---|---|---|---|---|
| page | 14.4 | 1 h | 5 min | 60 s, 5 s |
| page | 6 | 6 h | 30 min | 6 min, 30 s |
| ticket | 1 | 3 d | 6 h | 72 min, 6 min |

The workbook's month is 12 hours here: an hour is read as the contract's window. Windows that have not
filled yet are judged on what they hold, as a query over a younger time series is, from ``least_units`` on.
There is no test behind it: few observations, or a budget that a healthy kernel nearly spends, alert falsely.

Source: Beyer et al., The Site Reliability Workbook (O'Reilly 2018), chapter 5, "Alerting on SLOs".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from controller.detect.clauses import ClausePlan, Kind, applies, from_traffic
from controller.detect.detector import AlarmState, DetectorState, EvidenceBatch
from controller.detect.latched import forgotten, latched
from controller.detect.sums import COUNT, OVER, TOTAL, Sums

#: Factors of the workbook's alerts and their long windows, in hours; short windows are a twelfth.
FACTORS = (14.4, 6.0, 1.0)
LONG_HOURS = (1.0, 6.0, 72.0)
BINS = 12
#: Burn of a clause that tolerates nothing and got something.
CERTAIN = 1e9
#: Float clocks of equal ticks miss the end of a bin by rounding; this much is ignored.
_CLOCK_SLACK_S = 1e-6

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnRateDetector:
    """Multi-window, multi-burn-rate alerts on every clause stream; see the module.

    hour_s: what is read as an hour. least_units: in a long window, below which it says nothing.
    """

    clauses: ClausePlan
    hour_s: float
    least_units: float = 10.0

    @property
    def by_observation(self) -> bool:
        """Bins are shorter than the contract's window."""
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
        """0 or 1: a bin says nothing before it ends."""
        return latched(state, contract)

    def update(
        self,
        state: DetectorState,
        sums: Sums | None,  # noqa: ARG002
        closed: NDArray[np.bool_],  # noqa: ARG002
        contract: CompiledContract,
        arrived: EvidenceBatch | None = None,
        *,
        consume: bool = False,  # noqa: ARG002
    ) -> tuple[AlarmState, DetectorState]:
        """Add this tick to the bins and judge the tiers whose bin ends; see the protocol."""
        if arrived is None:
            raise ValueError("burn rates are judged by arrivals, not by sums of windows")
        since_s = arrived.since_s[:, None, None, None, None]
        after: DetectorState = {
            **state,
            "running": np.asarray(state["running"], dtype=np.float64) + arrived.sums[..., None, :],
            "age_s": np.asarray(state["age_s"], dtype=np.float64) + since_s,
        }
        ended = np.zeros(arrived.sums.shape[:-1], dtype=np.bool_)
        for tier in range(len(FACTORS)):
            ended |= self._end_bin(after, tier, contract)
        if bool(ended.any()):
            after.update(self._judged(after))
        alarm = np.asarray(after["alarm"], dtype=np.bool_)
        recent = np.asarray(after["recent"], dtype=np.float64)
        return AlarmState(
            alarm=alarm,
            excess=np.asarray(after["excess"], dtype=np.float64),
            inside=~alarm & self._kept(recent, contract),
            fresh=ended,
            judged=recent,
        ), after

    def _judged(self, after: DetectorState) -> DetectorState:
        """What only the end of a bin can change: alarm, excess and the sums of the shortest tier."""
        burning = np.asarray(after["burning"], dtype=np.float64)
        worst = np.maximum.reduce([burning[..., tier] for tier in range(len(FACTORS))])
        bins = np.asarray(after["bins0"], dtype=np.float64)
        return {"alarm": worst > 0.0, "excess": np.maximum(worst - 1.0, 0.0), "recent": bins.sum(axis=-2)}

    def _end_bin(self, after: DetectorState, tier: int, contract: CompiledContract) -> Flags:
        """Close the bins of ``tier`` that are full, in ``after``, and judge them; where, [B, U, S, C]."""
        long_s = LONG_HOURS[tier] * self.hour_s
        age_s = np.asarray(after["age_s"], dtype=np.float64)
        ended = np.asarray(age_s[..., tier] >= long_s / BINS - _CLOCK_SLACK_S)
        if not bool(ended.any()):
            return ended
        running = np.array(after["running"], dtype=np.float64)
        bins = np.asarray(after[f"bins{tier}"], dtype=np.float64)
        shifted = np.concatenate([bins[..., 1:, :], running[..., tier, None, :]], axis=-2)
        bins = np.where(ended[..., None, None], shifted, bins)
        running[..., tier, :][ended] = 0.0
        ages, burning = age_s.copy(), np.array(after["burning"])
        ages[..., tier][ended] = 0.0
        burning[..., tier] = np.where(ended, self._burning(bins, tier, contract), burning[..., tier])
        after.update({"running": running, f"bins{tier}": bins, "age_s": ages, "burning": burning})
        return ended

    def _burning(self, bins: Sums, tier: int, contract: CompiledContract) -> Floats:
        """Burn over the long window where both windows reach the tier's factor, else 0."""
        long = bins.sum(axis=-2)
        burn, lately = self.burn(long), self.burn(bins[..., -1, :])
        certain = self.clauses.kind == Kind.AT_ONCE
        known = (long[..., COUNT] >= self.least_units) | certain
        over = known & (burn >= FACTORS[tier]) & (lately >= FACTORS[tier]) & applies(contract)
        return np.where(over, burn, 0.0)

    def burn(self, sums: Sums) -> Floats:
        """Spent over allowed, float64 [B, U, S, C]; 0 without observations."""
        clauses, count = self.clauses, sums[..., COUNT]
        spent = np.where(clauses.mirrored, clauses.upper * count - sums[..., TOTAL], sums[..., TOTAL])
        spent = np.maximum(np.where(clauses.is_rate, sums[..., OVER], spent), 0.0)
        share = spent / np.maximum(count, 1.0)
        certain = np.where(share > 0.0, CERTAIN, 0.0)
        return np.where(clauses.kind == Kind.AT_ONCE, certain, share / clauses.null_mean)

    def _kept(self, recent: Sums, contract: CompiledContract) -> Flags:
        """The shortest long window burns below 1; or it is silent, and only traffic could tell."""
        known = recent[..., COUNT] >= self.least_units
        silent = (recent[..., COUNT] <= 0.0) & from_traffic(contract)
        return np.asarray((known & (self.burn(recent) < 1.0)) | silent)
