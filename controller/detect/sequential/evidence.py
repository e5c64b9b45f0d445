"""Evidence of one stream that its clause is broken, and evidence of health: memory and updates.

A stream is one (fleet, subject, slice, clause), or one pooled over slices. A subject is a replica, or a
kernel that pools its replicas. The memory of a stream is one row of ``WIDTH`` numbers, a *cell*: evidence of
each bet on the mean, then of each bet on the spread (``spread``; 0 without such bets), then the columns named
below.
The statistic is the logarithm of the level; ``reaches`` tests it against a threshold.

Recovery of a clause is a test as well, at a stated confidence: an e-process of the null "still broken".
Evidence of at least ``1 / (1 - confidence)`` means "healthy". A subject that is still broken ever reaches it
with a probability of at most ``1 - confidence`` per attempt, however often it is tested. An attempt starts
with the alarm, and another alarm starts a new one. Mean and rate clauses are tested at their limit, on the
clause's whole range; with a smaller upper bound of the observations, a clause broken by rare large values
would look kept. A sum over all start times would need no attempts, but it only bounds false returns per
*observation*: a subject that stays broken would certainly return sooner or later. Limit 0 cannot be shown by
any finite sample; there, ``clean_gain`` applies, and an observation over the threshold restarts the attempt.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.jit import compiled
from contracts.telemetry import Source
from controller.detect.clauses import ClausePlan, Kind, applies
from controller.detect.sequential.spread import SHARE, SPREADS, TILT_WEIGHTS
from controller.detect.step_time import step_time_observation
from controller.detect.streams.eprocess import MEAN_BETS
from controller.detect.streams.passes import CEILING, FLOOR
from controller.detect.streams.protocol import LOWEST, Flags, Floats

AT_ONCE, STEP_TIME = int(Kind.AT_ONCE), int(Source.STEP_TIME)
#: Bets on the mean of every clause: a constant, so that compiled loops over them unroll.
BETS = len(MEAN_BETS)
#: Columns of a cell after the bets on mean and spread: evidence of all bets together (0: no observation yet);
#: number and sum of the observations since it last stood below 1, where a change most likely began.
LEVEL = BETS + SPREADS
SINCE_COUNT, SINCE_SUM = LEVEL + 1, LEVEL + 2
WIDTH = LEVEL + 3
#: Weight of the bets on the mean together, and of each bet on the spread, where there are both.
_BET_SHARE, _TILT_WEIGHTS = 1.0 - SHARE, np.array(TILT_WEIGHTS)

#: Record of one clause for compiled code.
CLAUSE = np.dtype(
    [
        ("source", np.int64),  # ``Source``
        ("column", np.int64),  # of the probe values; -1 elsewhere
        ("kind", np.int64),  # ``Kind``
        ("threshold", np.float64),  # in the metric's unit
        ("sense", np.float64),  # 1: above the threshold is bad; -1: below it is
        ("null_mean", np.float64),  # mean of an observation where the clause is just kept
        ("upper", np.float64),  # an observation is upper - value where ``mirrored``
        ("clip", np.float64),  # upper bound of a value
        ("health_range", np.float64),  # upper bound of an observation as evidence of health
        ("bets", np.float64, (BETS,)),  # on the mean
        ("weights", np.float64, (BETS,)),  # of the bets; sum 1
        ("is_rate", np.bool_),
        ("mirrored", np.bool_),  # a mean clause "at least"
    ],
    align=True,
)


class EvidencePlan(NamedTuple):
    """Contract as the compiled passes read it, for U subjects."""

    clauses: NDArray[Any]  # ``CLAUSE`` [C]
    applies: Flags  # [C, S], online clauses only
    gain: float  # evidence of health of one clean observation where the limit is 0
    #: [U, S, C, SPREADS], ``exp(-psi)`` of ``spread`` (0: no bet; NaN: on other slices only; U = 0: none).
    fair: Floats


def evidence_plan(
    contract: CompiledContract, clauses: ClausePlan, gain: float, psi: Floats | None = None
) -> EvidencePlan:
    """Plan of a contract; ``psi`` [U, S, C, SPREADS]: normalisers of the subjects (None: no such bets)."""
    records = np.zeros(len(contract.clause_ids), dtype=CLAUSE)
    for name in ("source", "column", "threshold", "sense"):
        records[name] = getattr(contract, name)
    for name in (
        "kind",
        "null_mean",
        "upper",
        "clip",
        "health_range",
        "bets",
        "weights",
        "is_rate",
        "mirrored",
    ):
        records[name] = getattr(clauses, name)
    online = applies(contract)
    fair = np.empty((0, *online.shape, SPREADS)) if psi is None else fairness(psi)
    return EvidencePlan(clauses=records, applies=np.ascontiguousarray(online.T), gain=gain, fair=fair)


def fairness(psi: Floats) -> Floats:
    """``EvidencePlan.fair`` of normalisers ``psi`` [U, S, C, SPREADS]."""
    return np.ascontiguousarray(np.exp(-psi))


def blank_cells(*shape: int) -> Floats:
    """Memory [*shape, WIDTH] of streams without observations."""
    return np.zeros((*shape, WIDTH))


def statistic(cells: Floats) -> Floats:
    """Log-evidence [...] of ``cells`` [..., WIDTH]; ``LOWEST`` without observations."""
    level = cells[..., LEVEL]
    return np.asarray(np.where(level > 0.0, np.log(np.where(level > 0.0, level, 1.0)), LOWEST))


@compiled
def probe_observation(value, clause):
    """Observation of a probe: the indicator, or the clipped (mirrored) value, at least 0."""
    if clause.is_rate:
        return 1.0 if clause.sense * (value - clause.threshold) > 0.0 else 0.0
    if clause.mirrored:
        return max(clause.upper - value, 0.0)
    return max(min(value, clause.clip), 0.0)


@compiled
def scrape_observation(count, total, over, clause):
    """One scrape: the share of its ``count`` requests over the threshold, or their (mirrored) mean."""
    requests = max(count, 1.0)
    if clause.is_rate:
        return max(over / requests, 0.0)
    mean = total / requests
    if clause.source == STEP_TIME:
        return step_time_observation(mean, clause.threshold)
    return max(clause.upper - mean if clause.mirrored else min(mean, clause.clip), 0.0)


@compiled
def health_observation(y, count, total, clause):
    """Observation of the same scrape for the recovery test: ``y``; for step times the ratio in thresholds."""
    if clause.source == STEP_TIME and not clause.is_rate:
        return total / max(count, 1.0) / clause.threshold
    return y


@compiled
def update_evidence(cell, y, clause):
    """Add one observation ``y`` to the cell of one stream; clause: a record of ``CLAUSE``."""
    if clause.kind == AT_ONCE:
        cell[SINCE_COUNT] += 1.0
        cell[SINCE_SUM] += y
        if y > 0.0:
            cell[LEVEL] = CEILING
        return
    if cell[LEVEL] < 1.0:
        cell[SINCE_COUNT], cell[SINCE_SUM] = 0.0, 0.0
    cell[SINCE_COUNT] += 1.0
    cell[SINCE_SUM] += y
    excess = y / clause.null_mean - 1.0
    total = 0.0
    for g in range(BETS):
        grown = min((cell[g] + 1.0) * (1.0 + clause.bets[g] * excess), CEILING)
        cell[g] = grown
        total += clause.weights[g] * grown
    cell[LEVEL] = min(max(total, FLOOR), CEILING)


@compiled
def update_scrape(cell, y, size, clause):
    """Add one scrape to a cell: ``y`` as evidence, ``size`` to the sum behind the excess."""
    update_evidence(cell, y, clause)
    if size != y:
        cell[SINCE_SUM] += size - y


@compiled
def update_spread(cell, evalues):
    """After ``update_evidence``: add the e-values [SPREADS] of the same observation to the bets on spread."""
    mixed = _BET_SHARE * cell[LEVEL]
    for g in range(SPREADS):
        cell[BETS + g] = min((cell[BETS + g] + 1.0) * evalues[g], CEILING)
        mixed += _TILT_WEIGHTS[g] * cell[BETS + g]
    cell[LEVEL] = min(max(mixed, FLOOR), CEILING)


#: Shares of the largest admissible bet on health, and their number: a constant, so that loops unroll.
SHARES: tuple[float, ...] = (0.3, 0.7, 0.97)
HEALTHS = len(SHARES)
_SHARES, _AT_ONCE = np.array(SHARES), int(Kind.AT_ONCE)


def healthy_threshold(confidence: float) -> float:
    """Log-evidence of health at ``confidence``; ValueError outside 0 < confidence < 1."""
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"expected a confidence between 0 and 1, got {confidence}")
    return -math.log1p(-confidence)


def clean_gain(confidence: float, clean: int) -> float:
    """Evidence of health in one clean observation at limit 0: ``clean`` in a row reach ``confidence``.

    It is the e-value of "at least a share ``1 - 1 / gain`` of the observations is over the threshold".
    """
    healthy_threshold(confidence)  # raises for an invalid confidence
    return float((1.0 - confidence) ** (-1.0 / clean))


@compiled
def grow_health(health, y, clause, gain):
    """Add one observation ``y``, bounded by the clause's range, to evidence of health [HEALTHS].

    clause: a record of ``EvidencePlan.clauses``. At limit 0 every clean observation multiplies the evidence
    by ``gain``, and any other one restarts the attempt.
    """
    for h in range(HEALTHS):
        if clause.kind == _AT_ONCE:
            health[h] = min(health[h] * gain, CEILING) if y <= 0.0 else 1.0
        else:
            most = clause.null_mean / (clause.health_range - clause.null_mean)
            short = 1.0 - min(max(y, 0.0), clause.health_range) / clause.null_mean
            health[h] = min(health[h] * (1.0 + _SHARES[h] * most * short), CEILING)
