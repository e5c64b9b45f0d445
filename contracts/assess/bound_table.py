"""Bounds beside measurements: per slice of measured samples, and per clause of a contract.

A bound answers "how bad can it be", a measurement "how bad was it"; each row has both, so that they are not
confused. Every value is of one token position unless the row says otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from contracts.assess import bounds
from contracts.assess.observations import Observations
from contracts.documents.contract import Clause, KernelContract, RlAssumptions
from contracts.metrics import JudgedBy, metric

Floats = NDArray[np.float64]

#: Length L of the answer that the chain is shown for.
ANSWER_TOKENS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundRow:
    """One bound and the measured value, both in the quantity's unit."""

    scope: str  # slice, clause or distance
    quantity: str
    formula: str
    sharp: float
    paper: float | None  # None: the literature's constant is the sharp one, or there is none
    measured: float | None  # None: these samples do not hold the quantity
    needs: tuple[str, ...] = ()  # ids of the assumptions it rests on


def distance_rows(
    distance: float, temperature: float = 1.0, assumptions: RlAssumptions | None = None
) -> tuple[BoundRow, ...]:
    """The chain from one logit distance d; nothing is measured."""
    tv = float(bounds.tv_bound(distance, temperature))
    linear = float(bounds.tv_bound_linear(distance, temperature))
    answer = bounds.answer_tv_bound(np.full(ANSWER_TOKENS, tv))
    scope = f"d = {distance:g}"
    return (
        _tv_row(scope, "TV", distance, temperature, None),
        _row(scope, "TV, first order", "d / 2T", linear, None),
        _kl_row(scope, "KL, nats", float(bounds.kl_bound(distance, temperature)), None),
        _row(scope, f"TV of an answer of {ANSWER_TOKENS} tokens", "1 - (1 - TV)^L", answer, None),
        *_consequences(scope, tv, None, assumptions),
    )


def sample_rows(
    observations: Observations, temperature: float = 1.0, assumptions: RlAssumptions | None = None
) -> tuple[BoundRow, ...]:
    """The chain on every slice of ``observations``, from its measured distances, with the measured values.

    Slices without full-vocabulary distances are left out.
    """
    rows: list[BoundRow] = []
    for name in observations.slices:
        largest = observations.values("linf_max@full_vocab", name)
        if largest is not None:
            rows += _slice_rows(name, largest, observations, temperature)
            tv = _mean(observations, "tv_mean@full_vocab", name)
            if tv is not None:
                rows += _consequences(name, tv, tv, assumptions)
    return tuple(rows)


def _slice_rows(name: str, largest: Floats, observations: Observations, temperature: float) -> list[BoundRow]:
    worst = float(largest.max())
    largest_kl = float(bounds.kl_bound(worst, temperature))
    mean_kl = float(bounds.kl_bound(largest, temperature).mean())
    rows = [
        _tv_row(name, "largest TV", worst, temperature, _max(observations, "tv_max@full_vocab", name)),
        _kl_row(name, "largest KL, nats", largest_kl, _max(observations, "kl_max@full_vocab", name)),
        _kl_row(name, "mean KL, nats", mean_kl, _mean(observations, "kl_mean@full_vocab", name)),
    ]
    mean_distance = _mean(observations, "linf_mean@full_vocab", name)
    tv = _mean(observations, "tv_mean@full_vocab", name)
    if mean_distance is not None:  # tanh is concave, so the mean distance bounds the mean TV
        rows.append(_tv_row(name, "mean TV", mean_distance, temperature, tv))
    return rows + _ratio_rows(name, tv, observations)


def _ratio_rows(name: str, tv: float | None, observations: Observations) -> list[BoundRow]:
    measured = None if tv is None else 2.0 * tv
    rows: list[BoundRow] = []
    log_w = _mean(observations, "abs_log_w@full_vocab", name)
    if log_w is not None:
        bound = float(bounds.ratio_deviation_from_log(log_w))
        rows.append(_row(name, "E|w - 1|", "2 E|log w|", bound, measured))
    w_log_w = _mean(observations, "w_log_w@full_vocab", name)
    if w_log_w is not None:
        bound = float(bounds.ratio_deviation_from_kl(w_log_w))
        rows.append(_row(name, "E|w - 1|", "sqrt(2 E[w log w])", bound, measured))
    return rows


def _consequences(
    scope: str, tv: float, measured_tv: float | None, assumptions: RlAssumptions | None
) -> list[BoundRow]:
    """What a TV does to rewards and gradients; the effects themselves are not in the samples."""
    origin = "TV" if measured_tv is None else "measured TV"
    if assumptions is None:
        return []
    low, high = assumptions.reward_min, assumptions.reward_max
    scale = assumptions.advantage_max, assumptions.score_norm_max
    drift = BoundRow(
        scope=scope,
        quantity="reward drift of one step",
        formula=f"(r_max - r_min) {origin}",
        sharp=float(bounds.reward_drift_bound(tv, low, high)),
        paper=float(bounds.reward_drift_bound(tv, low, high, "paper")),
        measured=None,
    )
    gradient = float(bounds.gradient_bias_bound(2.0 * tv, *scale))
    truncated = float(bounds.truncated_bias_bound(tv, *scale))
    biases = (
        _row(scope, "policy-gradient bias", f"A_max G_max 2 {origin}", gradient, None),
        _row(scope, "bias left by min(w, c), c >= 1", f"A_max G_max {origin}", truncated, None),
    )
    return [drift, *(replace(row, needs=("A1", "A2", "A3")) for row in biases)]


def clause_rows(contract: KernelContract, observations: Observations | None = None) -> tuple[BoundRow, ...]:
    """The bound of each numeric clause on E TV of a token while it holds, and the worst slice's value."""
    rows: list[BoundRow] = []
    for clause in contract.spec.clauses:
        promise = tv_promise(clause, contract.spec.temperature)
        if promise is not None:
            formula, sharp, paper = promise
            measured = None if observations is None else _worst_mean_tv(clause, observations)
            rows.append(
                BoundRow(
                    scope=clause.id,
                    quantity="E TV",
                    formula=formula,
                    sharp=sharp,
                    paper=paper,
                    measured=measured,
                )
            )
    return tuple(rows)


def tv_promise(clause: Clause, temperature: float) -> tuple[str, float, float | None] | None:
    """(formula, sharp, paper) bound on E TV while ``clause`` holds; None where the clause gives none.

    A clip of the mean weakens the bound; a top-k or sampled estimate gives none.
    """
    if clause.estimator != "full_vocab" or clause.family != "N":
        return None
    spec = metric(clause.metric)
    column = spec.columns[spec.estimators.index("full_vocab")].partition("@")[0]
    rate = _tolerated(clause)
    distance = _distance_of(column, clause.threshold)
    if distance is not None:
        pair = [
            float(bounds.expected_tv_bound(distance, rate, temperature, constant)) if rate <= 1.0 else 1.0
            for constant in ("sharp", "paper")
        ]
        return "tanh(tau / 2T) + rho", pair[0], pair[1]
    found = _tv_of(column, clause.threshold, math.inf if clause.clip is None else clause.clip)
    if found is None:
        return None
    return f"{found[0]} + rho" if rate else found[0], min(1.0, found[1] + rate), None


def _tolerated(clause: Clause) -> float:
    spec = metric(clause.metric)
    if spec.judgement is JudgedBy.MEAN:
        return 0.0
    if spec.rate_limit is not None:
        return spec.rate_limit
    return clause.budget or clause.null_rate or 0.0


def _distance_of(column: str, threshold: float) -> float | None:
    """Logit half-range under a threshold on d or on the L2 norm (half the range is at most L2 / sqrt 2)."""
    if column in ("linf_max", "linf_mean"):
        return threshold
    return threshold / math.sqrt(2.0) if column == "l2_mean" else None


def _tv_of(column: str, threshold: float, clip: float) -> tuple[str, float] | None:
    """(formula, TV) under a threshold on a mean; a clip below the value that forces TV = 1 weakens it."""
    if column in ("kl_mean", "kl_max", "w_log_w"):
        formula = "sqrt(tau / clip)" if clip < 2.0 else "sqrt(tau / 2)"
        return formula, math.sqrt(0.5 * threshold * max(1.0, 2.0 / clip))
    if column in ("tv_mean", "tv_max", "abs_log_w"):
        return "tau / clip" if clip < 1.0 else "tau", threshold * max(1.0, 1.0 / clip)
    if column == "token_prob_error" and math.isinf(clip):
        return "(tau - 1) / 2", max(0.0, 0.5 * (threshold - 1.0))
    return None


def _worst_mean_tv(clause: Clause, observations: Observations) -> float | None:
    names = [name for name in observations.slices if clause.slices is None or name in clause.slices]
    means = [_mean(observations, "tv_mean@full_vocab", name) for name in names]
    return max((value for value in means if value is not None), default=None)


def _tv_row(
    scope: str, quantity: str, distance: float, temperature: float, measured: float | None
) -> BoundRow:
    return BoundRow(
        scope=scope,
        quantity=quantity,
        formula="tanh(d / 2T)",
        sharp=float(bounds.tv_bound(distance, temperature)),
        paper=float(bounds.tv_bound(distance, temperature, "paper")),
        measured=measured,
    )


def _kl_row(scope: str, quantity: str, bound: float, measured: float | None) -> BoundRow:
    return _row(scope, quantity, "d^2 / 2T^2", bound, measured)


def _row(scope: str, quantity: str, formula: str, sharp: float, measured: float | None) -> BoundRow:
    return BoundRow(
        scope=scope, quantity=quantity, formula=formula, sharp=sharp, paper=None, measured=measured
    )


def _mean(observations: Observations, column: str, name: str) -> float | None:
    values = observations.values(column, name)
    return None if values is None else float(values.mean())


def _max(observations: Observations, column: str, name: str) -> float | None:
    values = observations.values(column, name)
    return None if values is None else float(values.max())
