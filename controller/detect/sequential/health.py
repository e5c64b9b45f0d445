"""Evidence of health: recovery of a clause is a test too, at a stated confidence.

The test is an e-process of the null "still broken": evidence of at least ``1 / (1 - confidence)`` says
"healthy", and a subject that is still broken gets there, ever, with probability at most ``1 - confidence``
per attempt, however often one looks. An attempt begins with the alarm; a further alarm begins a new one.
Mean and rate clauses are tested at their limit, on the clause's whole range: observations read up to less
than that would call a clause kept that rare large ones break. The best of all starts would need no
attempts, but its bound is one false return in so many *observations*: a subject that stays broken would be
brought back for certain, sooner or later. At limit 0, which no finite sample shows, ``clean_gain``: an
observation over the threshold begins anew.
"""

from __future__ import annotations

import math

import numpy as np

from contracts.jit import compiled
from controller.detect.clauses import Kind
from controller.detect.streams.passes import CEILING

#: Shares of the largest admissible bet on health, and how many: a constant, so that compiled loops unroll.
SHARES: tuple[float, ...] = (0.3, 0.7, 0.97)
HEALTHS = len(SHARES)
_SHARES, _AT_ONCE = np.array(SHARES), int(Kind.AT_ONCE)


def healthy_threshold(confidence: float) -> float:
    """Log-evidence of health at ``confidence``; ValueError outside 0 < confidence < 1."""
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"expected a confidence between 0 and 1, got {confidence}")
    return -math.log1p(-confidence)


def clean_gain(confidence: float, clean: int) -> float:
    """Evidence of health of one clean observation at limit 0: ``clean`` in a row reach ``confidence``.

    It is the e-value of "at least a share ``1 - 1 / gain`` of the observations is over the threshold".
    """
    healthy_threshold(confidence)  # refuses what is no confidence
    return float((1.0 - confidence) ** (-1.0 / clean))


@compiled
def grow_health(health, y, clause, gain):
    """One observation ``y``, read up to the clause's range, into evidence of health [HEALTHS], one start.

    clause: a record of ``EvidencePlan.clauses``. At limit 0 every clean observation multiplies the evidence
    by ``gain`` and any other one begins the attempt anew.
    """
    for h in range(HEALTHS):
        if clause.kind == _AT_ONCE:
            health[h] = min(health[h] * gain, CEILING) if y <= 0.0 else 1.0
        else:
            most = clause.null_mean / (clause.health_range - clause.null_mean)
            short = 1.0 - min(max(y, 0.0), clause.health_range) / clause.null_mean
            health[h] = min(health[h] * (1.0 + _SHARES[h] * most * short), CEILING)
