"""What a control tick is worth: the law that the environment, training and validation share.

Over the requests of all slices that ended in the tick: ended = answered + failed + shed, of which
``good = answered - slo_missed`` kept every objective of their slice; A output tokens answered, E their
excess total variation to the reference, summed.

    goodput  = good / max(1, ended)                                     in [0, 1]
    quality  = max(0, 1 - w_quality * E / max(1, A))                    in [0, 1]
    moved    = mean over slices of 1/2 sum_k |W_t[s,k] - W_(t-1)[s,k]|  in [0, 1]
    capacity = sum_k answers_k / cap_k * min(cap) / max(1, answered)    in [0, 1]
    reward   = goodput * quality - w_move * moved - w_capacity * capacity

in [-w_move - w_capacity, 1], dimensionless. W_t is the table in force during the tick, after shield and
supervisor; cap_k is the rate one replica of kernel k carries, so ``capacity`` is the accelerator time of
an answer relative to the dearest kernel's. A shed or failed request is not good, and answers nothing.

Clause c turns into an additive cost with limit 0, in observations (answered requests on the slices that the
clause names; for failure clauses answered and failed ones):

    cost_c = exceed_c - rho_c * n_c            in [-rho_c * n_c, n_c]

A percentile or per-observation clause counts the observations beyond its threshold against its rate limit. A
mean clause counts those served while the measured mean broke the threshold, against its budget. Hard clauses
have a cost too, but they are the shield's: ``cost`` is the largest over the *soft* clauses. Since the sum of
maxima is at least every single sum, an episode whose ``cost`` sums to at most 0 keeps every soft clause.

The functions take numbers or arrays; compiled code may compile them as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardWeights:
    """Weights of the reward, dimensionless."""

    quality: float = 1.0
    """1 is E5's own loss (mean TV of an answered token); more makes drift count for more."""
    move: float = 0.02
    """Moving everything costs as much as losing 2 % of a tick's requests."""
    capacity: float = 0.02
    """Serving all from the dearest kernel costs 2 %, so that it is a failover target and no home."""

    def __post_init__(self) -> None:
        for name in ("quality", "move", "capacity"):
            if not 0.0 <= getattr(self, name) < np.inf:
                raise ValueError(f"reward weight {name}: expected a number >= 0, got {getattr(self, name)}")


def goodput_of(good: Any, ended: Any) -> Any:
    """Share of the ended requests that kept every objective."""
    return good / np.maximum(ended, 1.0)


def quality_of(excess_tv_tokens: Any, answered_tokens: Any, weight: float) -> Any:
    """What the drift of the answered tokens leaves."""
    return np.maximum(0.0, 1.0 - weight * (excess_tv_tokens / np.maximum(answered_tokens, 1.0)))


def capacity_of(used: Any, answered: Any) -> Any:
    """Accelerator time of an answer; ``used`` is that of all, in answers of the dearest kernel."""
    return used / np.maximum(answered, 1.0)


def reward_of(
    goodput: Any, quality: Any, moved: Any, capacity: Any, move_weight: float, capacity_weight: float
) -> Any:
    """The reward of its terms."""
    return goodput * quality - move_weight * moved - capacity_weight * capacity


def soft_clauses(contract: CompiledContract) -> NDArray[np.bool_]:
    """Bool [C]: clauses whose cost counts; not the shield's, nor those that only offline checks judge."""
    return np.asarray(~contract.hard & (contract.source != int(Source.OFFLINE)))
