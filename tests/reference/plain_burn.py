"""Plain definition of the burn-rate alerts: whole arrays at once, tier by tier, nothing written in place."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from controller.detect.burn_rate import BINS, FACTORS, LONG_HOURS, BurnRateDetector
from controller.detect.clauses import Kind, applies, needs_traffic
from controller.detect.detector import AlarmState, DetectorState, EvidenceBatch, floats
from controller.detect.sums import COUNT, OVER, TOTAL, Sums

CERTAIN, SLACK_S = 1e9, 1e-6


def plain_update(
    detector: BurnRateDetector, state: DetectorState, contract: CompiledContract, arrived: EvidenceBatch
) -> tuple[AlarmState, DetectorState]:
    """``BurnRateDetector.update``."""
    after: DetectorState = {
        **state,
        "running": floats(state, "running") + arrived.sums[..., None, :],
        "age_s": floats(state, "age_s") + arrived.since_s[:, None, None, None, None],
    }
    ended = np.zeros(arrived.sums.shape[:-1], dtype=np.bool_)
    for tier in range(len(FACTORS)):
        ended |= _end_bin(detector, after, tier, contract)
    if ended.any():
        worst = after["burning"].max(axis=-1)
        recent = after["bins0"].sum(axis=-2)
        after |= {"alarm": worst > 0.0, "excess": np.maximum(worst - 1.0, 0.0), "recent": recent}
    alarm, recent = after["alarm"].astype(np.bool_), after["recent"].astype(np.float64)
    known = recent[..., COUNT] >= detector.least_observations
    silent = (recent[..., COUNT] <= 0.0) & needs_traffic(contract)
    kept = (known & (_burn(detector, recent) < 1.0)) | silent
    excess = after["excess"].astype(np.float64)
    return AlarmState(alarm=alarm, excess=excess, inside=~alarm & kept, fresh=ended, judged=recent), after


def _end_bin(
    detector: BurnRateDetector, after: DetectorState, tier: int, contract: CompiledContract
) -> NDArray[np.bool_]:
    """Close the bins of ``tier`` that are full; where."""
    ended = np.asarray(
        floats(after, "age_s")[..., tier] >= LONG_HOURS[tier] * detector.hour_s / BINS - SLACK_S,
        dtype=np.bool_,
    )
    name = f"bins{tier}"
    bins = floats(after, name)
    shifted = np.concatenate([bins[..., 1:, :], floats(after, "running")[..., tier, None, :]], axis=-2)
    after[name] = bins = np.where(ended[..., None, None], shifted, bins)
    running, ages, burning = (after[key].copy() for key in ("running", "age_s", "burning"))
    running[..., tier, :][ended], ages[..., tier][ended] = 0.0, 0.0
    long = bins.sum(axis=-2)
    burn, lately = _burn(detector, long), _burn(detector, bins[..., -1, :])
    known = (long[..., COUNT] >= detector.least_observations) | (detector.clauses.kind == Kind.AT_ONCE)
    over = known & (burn >= FACTORS[tier]) & (lately >= FACTORS[tier]) & applies(contract)
    burning[..., tier] = np.where(ended, np.where(over, burn, 0.0), burning[..., tier])
    after.update({"running": running, "age_s": ages, "burning": burning})
    return ended


def _burn(detector: BurnRateDetector, sums: Sums) -> NDArray[np.float64]:
    """Spent over allowed; 0 without observations."""
    clauses, count = detector.clauses, sums[..., COUNT]
    spent = np.where(clauses.mirrored, clauses.upper * count - sums[..., TOTAL], sums[..., TOTAL])
    spent = np.maximum(np.where(clauses.is_rate, sums[..., OVER], spent), 0.0)
    share = spent / np.maximum(count, 1.0)
    certain = np.where(share > 0.0, CERTAIN, 0.0)
    return np.where(clauses.kind == Kind.AT_ONCE, certain, share / clauses.null_mean)
