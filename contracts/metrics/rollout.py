"""Rollout metrics (family S): does training see the same trajectories as an audit rollout?

An audit rollout repeats the same prompts with the reference kernel. One number per training step; both
are judged from logged steps by ``selvage contract evaluate``, never online.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.metrics.registry import register_metric
from contracts.telemetry import Source


@register_metric(
    "reward_trajectory_gap",
    family="S",
    unit="reward",
    columns={"none": "reward_gap"},
    source=Source.OFFLINE,
)
def reward_gap(candidate: NDArray[np.float64], audit: NDArray[np.float64]) -> NDArray[np.float64]:
    """|mean reward of the rollout - mean reward of the audit rollout| per step, float64 [steps]."""
    return _step_gap(candidate, audit)


@register_metric(
    "reference_kl_trajectory_gap",
    family="S",
    unit="nats",
    columns={"none": "reference_kl_gap"},
    source=Source.OFFLINE,
)
def reference_kl_gap(candidate: NDArray[np.float64], audit: NDArray[np.float64]) -> NDArray[np.float64]:
    """|KL to the reference policy in the rollout - the same in the audit| per step, float64 [steps]."""
    return _step_gap(candidate, audit)


def _step_gap(candidate: NDArray[np.float64], audit: NDArray[np.float64]) -> NDArray[np.float64]:
    """|difference of the means over answers| per step; both are float64 [steps, answers]."""
    if candidate.ndim != 2 or audit.ndim != 2 or candidate.shape[0] != audit.shape[0]:
        raise ValueError(f"need [steps, answers] of the same steps, got {candidate.shape} and {audit.shape}")
    return np.asarray(np.abs(candidate.mean(axis=1) - audit.mean(axis=1)))
