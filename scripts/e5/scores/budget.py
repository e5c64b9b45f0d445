"""The split of a contract's budget of false switches over the streams of each configuration that has one.

The thresholds are those that the configuration's detector uses: they are read from its plan, not computed
anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.detect.budget import BudgetLine
from controller.detect.certified_drift import FLAG_SHARE
from controller.detect.detector import Detector
from controller.detect.sequential.detector import SequentialDetector
from controller.detect.sequential.plan import SequentialPlan


def budgets(detectors: Iterable[tuple[str, Detector]]) -> dict[str, Any]:
    """Budget and split by name of the configuration, of those configurations whose detector has a budget;
    plain JSON.
    """
    return {
        name: _split(detector.plan)
        for name, detector in detectors
        if isinstance(detector, SequentialDetector)
    }


def _split(plan: SequentialPlan) -> dict[str, Any]:
    split, flags = plan.split, _flags(plan)
    return {
        "per_slice_month": split.budget.per_slice_month
        + (flags["per_slice_month"] if flags and flags["switch"] else 0.0),
        "alarms": split.budget.per_slice_month,
        "flags": flags,
        "kernel_share": split.budget.kernel_share,
        "alarms_per_slice_month": split.alarms_per_slice_month,
        "at_once": list(split.at_once),
        "lines": [_line(plan, line) for line in split.lines],
    }


def _flags(plan: SequentialPlan) -> dict[str, Any] | None:
    """Rate of false flags of a change, if probes are compared with certified values.

    switch: they lead to alarms, so routing alarms leave them a part of the budget.
    """
    drift = plan.drift
    if drift is None:
        return None
    kept = plan.split.budget.per_slice_month
    return {
        "per_slice_month": kept * FLAG_SHARE / (1.0 - FLAG_SHARE if drift.prior else 1.0),
        "switch": drift.prior,
        "streams": int(drift.replica_kernel.size * drift.metrics.size),
        "arl0": drift.arl0,
        "threshold": drift.threshold,
    }


def _line(plan: SequentialPlan, line: BudgetLine) -> dict[str, Any]:
    place = plan.contract.slices.index(line.slice), plan.contract.clause_ids.index(line.clause)
    replica, over_slices = plan.thresholds.beside_all(plan.owner)
    own = plan.thresholds.kernel if line.unit == "kernel" else replica
    threshold = _largest(own[:, place[0], place[1]])
    whole = _largest(over_slices[:, place[1]]) if line.unit == "replica" else None
    return {
        "clause": line.clause,
        "slice": line.slice,
        "unit": line.unit,
        "streams": line.streams,
        "samples_per_s": line.samples_per_s,
        "alarms_per_month": line.alarms_per_month,
        "arl0": line.arl0 if math.isfinite(line.arl0) else None,
        "threshold": threshold,
        "threshold_over_slices": whole,
        "guaranteed": line.guaranteed,
    }


def _largest(levels: NDArray[np.float64]) -> float | None:
    """Largest threshold of any stream; None if no stream is watched."""
    finite = levels[np.isfinite(levels)]
    return float(finite.max()) if finite.size else None
