"""Do the assumptions of the gradient-bias bounds hold on the samples at hand?

``|bias| <= A_max G_max E|w - 1|`` needs support overlap (A1: pi_inf never rules out a token that
pi_train may take), a bounded advantage (A2) and a bounded score norm (A3). Samples can refute an
assumption, or agree with a declared bound; they cannot prove a bound for what was not sampled, and the
evidence says how many were looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from contracts.assess.observations import Observations
from contracts.documents.contract import RlAssumptions

Floats = NDArray[np.float64]

#: Log columns that are evidence for the assumptions (``docs/samples.md``).
ADVANTAGE, SCORE_NORM, LOST_MASS = "advantage", "score_norm", "lost_mass"


class AssumptionStanding(StrEnum):
    """Whether the samples refute an assumption, agree with it or leave it open."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_CHECKABLE = "not_checkable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One assumption, compared with samples."""

    id: str  # A1, A2 or A3
    statement: str
    standing: AssumptionStanding  # on these samples
    evidence: str  # in words


def check_assumptions(
    observations: Observations | None,
    declared: RlAssumptions | None,
    *,
    truncated_sampling: bool | None = None,
) -> tuple[Assumption, ...]:
    """A1, A2 and A3 on ``observations``, against the contract's ``assumptions`` block.

    truncated_sampling: whether rollouts sample with top-k, top-p or min-p (None: not known).
    """
    advantage_max = declared.advantage_max if declared else None
    score_norm_max = declared.score_norm_max if declared else None
    return (
        _support(observations, truncated_sampling),
        _bounded(observations, "A2", "advantages are bounded by A_max", ADVANTAGE, advantage_max),
        _bounded(observations, "A3", "score norms are bounded by G_max", SCORE_NORM, score_norm_max),
    )


def _support(observations: Observations | None, truncated: bool | None) -> Assumption:
    standing, evidence = _support_standing(observations, truncated)
    statement = "support overlap: every token that training may take, the kernel may sample"
    return Assumption(id="A1", statement=statement, standing=standing, evidence=evidence)


def _support_standing(
    observations: Observations | None, truncated: bool | None
) -> tuple[AssumptionStanding, str]:
    if truncated:
        return AssumptionStanding.FAILS, "rollouts sample with top-k, top-p or min-p, which rules out tokens"
    lost = None if observations is None else observations.values(LOST_MASS, None)
    if lost is not None:
        worst, share = float(lost.max()), float((lost > 0.0).mean())
        if worst > 0.0:
            return (
                AssumptionStanding.FAILS,
                f"train mass up to {worst:.3g} has no support, on {share:.3g} of {lost.size} observations",
            )
        return AssumptionStanding.HOLDS, f"no train mass without support on {lost.size} observations"
    kl = None if observations is None else observations.values("kl_mean@full_vocab", None)
    if kl is None:
        return AssumptionStanding.NOT_CHECKABLE, "needs lost_mass or full-vocabulary log-probabilities"
    evidence = f"KL(train || inf) over the full vocabulary is finite on {kl.size} observations"
    if truncated is None:
        return (
            AssumptionStanding.NOT_CHECKABLE,
            f"{evidence}, but it is not known whether sampling is truncated",
        )
    return AssumptionStanding.HOLDS, f"{evidence}, and sampling is not truncated"


def _bounded(
    observations: Observations | None, name: str, statement: str, column: str, bound: float | None
) -> Assumption:
    values = None if observations is None else observations.values(column, None)
    standing, evidence = _bounded_standing(values, column, bound)
    return Assumption(id=name, statement=statement, standing=standing, evidence=evidence)


def _bounded_standing(
    values: Floats | None, column: str, bound: float | None
) -> tuple[AssumptionStanding, str]:
    if values is None:
        declared = "no bound is declared" if bound is None else f"{bound:g} is declared"
        return AssumptionStanding.NOT_CHECKABLE, f"{declared}, and the samples hold no {column}"
    largest = float(np.abs(values).max())
    seen = f"largest |{column}| of {values.size} observations is {largest:.4g}"
    if bound is None:
        return AssumptionStanding.NOT_CHECKABLE, f"{seen}, but the contract declares no bound"
    if largest > bound:
        return AssumptionStanding.FAILS, f"{seen}, over the declared {bound:g}"
    return AssumptionStanding.HOLDS, f"{seen}, within the declared {bound:g}"
