"""Sequential detection against the best tuned window at equal false switches: ``selvage bench windows``.

Fleets answer probes and nothing else (``simulator.probe_fleet``); the controller is the shipped one. Every
setting is matched on a control whose home kernels stand just at their limit, the least favourable null: the
confidence of each window, and the budget of the sequential detector, are bisected until it shows the same
number of false switches. Windows get the benefit of the doubt: not fewer than the target, sequential not
more. Two windows are then chosen by their lag over all faults, on the tuning seeds: the least worst and
the least mean. On other seeds all of them face every measured fault that breaks the contract, on a whole
kernel and on one replica. A ratio below 1 says that sequential is faster; its 95 % limits are a bootstrap
over seeds.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from contracts.scoring.intervals import poisson_rate
from scripts.studies.detection.measured import shipped
from scripts.studies.windows.cases import SEED
from scripts.studies.windows.compare import WindowComparison, ratio, shipped_result, verdict


def run() -> dict[str, object]:
    """Flat figures: the matched settings, and per fault times, excess over the floor, ratios and verdicts."""
    if shipped("bf16") is None or shipped("w8a8") is None:
        return {"seed": SEED, "not_measured": "the shipped profiles of bf16 and w8a8 are not there"}
    return {"seed": SEED, **figures(shipped_result())}


def figures(result: WindowComparison) -> dict[str, object]:
    """``result`` as a flat object."""
    flat: dict[str, object] = {"lower_bound_s": result.lower_bound_s, "cases": len(result.cases)}
    for configuration in result.configurations:
        key = configuration.watch.spec
        flat |= {
            f"{key}/log10_looseness": round(configuration.found.setting, 4),
            f"{key}/false_switches_tuning": configuration.found.count,
            f"{key}/matched": configuration.found.reached,
            f"{key}/tuning_lag_s_worst": round(configuration.worst, 2),
            f"{key}/tuning_lag_s_mean": round(configuration.mean, 2),
        }
    for name, (configuration, _, counted) in result.final.items():
        rate = poisson_rate(counted.episodes, counted.slice_months)
        flat |= {
            f"{name}/spec": configuration.watch.spec,
            f"{name}/false_switches": counted.episodes,
            f"{name}/false_quarantines": counted.quarantines,
            f"{name}/false_switches_per_slice_month": round(rate.mean, 2),
            f"{name}/false_switches_per_slice_month_low": round(rate.ci_low, 2),
            f"{name}/false_switches_per_slice_month_high": round(rate.ci_high, 2),
        }
    for window in ("least_worst", "least_mean"):
        flat |= _against(result, window)
    for (spec, noise), times in result.forms.items():
        for index, case in enumerate(result.cases):
            key = f"{spec}/noise={noise:g}/{case.label}"
            flat[f"{key}/lag_s"] = _shown(np.nanmean(times.lag[index]))
            flat[f"{key}/mttr_s"] = _shown(np.nanmean(times.mttr[index]))
    return flat


def _against(result: WindowComparison, window: str) -> dict[str, object]:
    """Sequential against one window, case by case and at its worst one."""
    mine, theirs = result.final["sequential"][1], result.final[window][1]
    flat: dict[str, object] = {}
    for name in ("lag", "mttr"):
        own, other = getattr(mine, name), getattr(theirs, name)
        verdicts = []
        for index, case in enumerate(result.cases):
            found = ratio(own[index], other[index], f"{name}/{case.label}")
            verdicts.append(verdict(found))
            key = f"{window}/{case.label}/{name}"
            flat |= {
                f"{key}_s": _shown(np.nanmean(own[index])),
                f"{key}_s_window": _shown(np.nanmean(other[index])),
                f"{key}_excess_s": _shown(np.nanmean(own[index]) - result.lower_bound_s),
                f"{key}_ratio": _shown(found.mean),
                f"{key}_ratio_low": _shown(found.ci_low),
                f"{key}_ratio_high": _shown(found.ci_high),
                f"{key}_verdict": verdicts[-1],
            }
        flat |= {f"{window}/{name}_cases_{kind}": verdicts.count(kind) for kind in _KINDS}
        flat |= _worst(own, other, f"{window}/{name}")
    return flat


_KINDS = ("faster", "level", "slower")


def _worst(own: NDArray[np.float64], other: NDArray[np.float64], key: str) -> dict[str, object]:
    """Both at the window's worst case, and each at its own worst case."""
    means, others = np.nanmean(own, axis=1), np.nanmean(other, axis=1)
    place = int(others.argmax())
    found = ratio(own[place], other[place], f"{key}/worst")
    return {
        f"{key}_worst_s": _shown(means.max()),
        f"{key}_worst_s_window": _shown(others.max()),
        f"{key}_ratio_at_worst": _shown(found.mean),
        f"{key}_verdict_at_worst": verdict(found),
    }


def _shown(value: float) -> float | None:
    return round(float(value), 3) if math.isfinite(value) else None
