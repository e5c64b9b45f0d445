"""Statistical metrics (family S): labelled answers, rated by a pluggable judge, and training trajectories.

A gap is candidate minus reference on the *same* prompts, one paired difference in [-1, 1] per prompt;
the clause limits the absolute mean. Small models neither refuse nor follow formats, so shipped
profiles list these metrics as not measured.

Trajectory gaps compare training rollouts with audit rollouts, which repeat the same prompts on the
reference kernel: one number per training step. Both metrics are judged from logged steps by
``selvage contract evaluate``, never online.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from contracts.metrics.registry import register_metric
from contracts.telemetry import Source


class AnswerJudge(Protocol):
    """Decides whether an answer has one property."""

    def judge(self, answer: str) -> bool:
        """True if the answer has the property (is a refusal, parses)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexJudge:
    """Finds ``pattern`` in an answer, ignoring case."""

    pattern: str

    def judge(self, answer: str) -> bool:
        """True if the pattern occurs anywhere in ``answer``."""
        return re.search(self.pattern, answer, re.IGNORECASE) is not None


#: Opening phrases of refusals by instruction-tuned models.
REFUSAL_JUDGE = RegexJudge(
    pattern=r"^\W*(i('m| am) sorry|i can(no|')t|i('m| am) (not able|unable)|as an ai|i won't)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonJudge:
    """Accepts answers that are one JSON value; if ``required`` keys are named, an object with all of them."""

    required: tuple[str, ...] = ()

    def judge(self, answer: str) -> bool:
        """True if the whole answer parses and has the required keys."""
        try:
            value = json.loads(answer)
        except (ValueError, RecursionError):
            return False
        if not self.required:
            return True
        return isinstance(value, dict) and all(name in value for name in self.required)


@register_metric(
    "refusal_rate_gap",
    family="S",
    unit="ratio",
    columns={"none": "refusal_difference"},
    source=Source.OFFLINE,
)
@register_metric(
    "parseability_gap",
    family="S",
    unit="ratio",
    columns={"none": "parse_difference"},
    source=Source.OFFLINE,
)
def judged_difference(
    reference: Sequence[str], candidate: Sequence[str], judge: AnswerJudge
) -> NDArray[np.float64]:
    """Paired difference of the judge's verdicts, candidate less reference, in {-1, 0, 1}, float64 [N]."""
    if len(reference) != len(candidate):
        raise ValueError(f"answers are paired: {len(reference)} of the reference, {len(candidate)} others")
    pairs = zip(reference, candidate, strict=True)
    return np.array([float(judge.judge(new)) - float(judge.judge(old)) for old, new in pairs])


def calibration_error(confidence: NDArray[np.float64], correct: NDArray[np.bool_], bins: int = 15) -> float:
    """Expected calibration error, 0..1: sum over equal-width bins of share x |accuracy - confidence|.

    confidence: float64 [N] in 0..1; correct: bool [N]. A confidence on an edge falls in the lower bin.
    """
    if confidence.size == 0 or confidence.shape != correct.shape:
        raise ValueError(f"need equal, non-empty arrays, got {confidence.shape} and {correct.shape}")
    place = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    gap = np.bincount(place, weights=correct - confidence, minlength=bins)
    return float(np.abs(gap).sum() / confidence.size)


@register_metric(
    "ece_gap",
    family="S",
    unit="ratio",
    columns={"none": "ece_gap"},
    source=Source.OFFLINE,
)
def ece_gap(
    reference_confidence: NDArray[np.float64],
    candidate_confidence: NDArray[np.float64],
    reference_correct: NDArray[np.bool_],
    candidate_correct: NDArray[np.bool_],
) -> float:
    """|ECE of the candidate - ECE of the reference| on the same labelled tokens."""
    candidate = calibration_error(candidate_confidence, candidate_correct)
    return abs(candidate - calibration_error(reference_confidence, reference_correct))


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
    """|KL to the reference policy in the rollout - KL to it in the audit| per step, float64 [steps]."""
    return _step_gap(candidate, audit)


def _step_gap(candidate: NDArray[np.float64], audit: NDArray[np.float64]) -> NDArray[np.float64]:
    """|difference of the means over answers| per step; both inputs are float64 [steps, answers]."""
    if candidate.ndim != 2 or audit.ndim != 2 or candidate.shape[0] != audit.shape[0]:
        raise ValueError(f"need [steps, answers] of the same steps, got {candidate.shape} and {audit.shape}")
    return np.asarray(np.abs(candidate.mean(axis=1) - audit.mean(axis=1)))
