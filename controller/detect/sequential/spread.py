"""Bets that use the known spread of observations: faster evidence than a bet on the mean alone.

A bet on values >= 0 with mean <= m grows by at most ``log(mean / m)`` per observation, however small their
spread, because it has to hold for every law with that mean. A measured kernel has more information: its
values spread little about their mean, and a shift by a few standard deviations is found in a few
observations. For tilts a

    e = exp(min(a x / m - psi, cap)),    psi = log mean_i exp(a y_i)

with y_i the certified values of this kernel on this slice, scaled to mean 1 and stretched about it. ``E[e |
past] <= 1`` under the *named null*: the clause holds, and in limits of the clause an observation is at most
the stretched certified law (in increasing convex order: no larger in the mean, no wider where it is as
large). This null is narrower than that of a bet on the mean, which holds for any law. So only a part of the
evidence's weight (``SHARE``) uses it, and the rest bets on the mean as before. Where the certified spread is
so wide that nothing is gained, no weight uses it.

The cap keeps a single observation from deciding: a subject is judged after several, and so are its peers.
"""

from __future__ import annotations

import math

import numpy as np

from contracts.compiled.contract import CompiledContract
from contracts.jit import compiled
from contracts.metrics.registry import UnknownMetricError, metric
from contracts.telemetry import Source
from controller.detect.clauses import ClausePlan, Kind
from controller.detect.streams.protocol import Flags, Floats

#: Tilts per limit, each twice the one before. They grow best on shifts of 1 to 10 times the spread, for
#: spreads from 0.1 to 0.5.
TILTS: tuple[float, ...] = (2.0, 4.0, 8.0, 16.0)
#: Weights of the tilts in the evidence. The smallest doses need the most observations, and the first tilt.
TILT_WEIGHTS: tuple[float, ...] = (0.28, 0.11, 0.07, 0.04)
#: Width of the law under the null over that of the certified one, by unit of the metric; there is no bet on
#: other units. Every measured condition of the shipped kernels that keeps the clause is within it, as
#: measured; for probabilities every condition is, scaled to the limit.
STRETCH = {"probability": 2.5, "nats": 1.5}
#: Upper bound of the log-evidence of one observation.
CAP = 4.0
SHARE, SPREADS = sum(TILT_WEIGHTS), len(TILTS)
#: Largest stretched spread, as a share of the mean, at which a tilt still gains on a bet.
WIDEST = 0.5
#: The first tilt, and the most that one observation may multiply its evidence by.
_TILT, _MOST = TILTS[0], math.exp(CAP)


def stretched(values: Floats, stretch: float) -> Floats:
    """Certified ``values`` [n], >= 0 with a mean above 0, scaled to mean 1 and stretched about it."""
    wide = np.maximum(1.0 + stretch * (values / values.mean() - 1.0), 0.0)
    return np.asarray(wide / wide.mean())


def log_normaliser(values: Floats, stretch: float) -> Floats:
    """psi [A] of certified ``values`` [n]; inf (no bet): too few values, mean 0, or too wide a spread."""
    known = values[np.isfinite(values)]
    if known.size < 2 or not known.mean() > 0.0:
        return np.full(len(TILTS), np.inf)
    law = stretched(known, stretch)
    if law.std() > WIDEST:
        return np.full(len(TILTS), np.inf)
    return np.asarray(np.log(np.exp(np.array(TILTS)[:, None] * law).mean(axis=1)))


def stretches(columns: tuple[str, ...]) -> Floats:
    """Stretch [M] of the probe columns (``metric@estimator``); 0: no bet on their spread."""
    return np.array([STRETCH.get(_unit(name.partition("@")[0]), 0.0) for name in columns], dtype=np.float64)


def _unit(name: str) -> str:
    """Unit of a registered metric; empty for any other name."""
    try:
        return metric(name).unit
    except UnknownMetricError:
        return ""


def bet_on(contract: CompiledContract, clauses: ClausePlan, stretch: Floats) -> Flags:
    """bool [C]: mean clauses "at most" on probes, over columns with a ``stretch`` [M]."""
    probed = contract.source == Source.PROBE
    column = np.where(probed, contract.column, 0)
    return np.asarray(
        probed
        & (clauses.kind == Kind.BETTING)
        & ~clauses.is_rate
        & ~clauses.mirrored
        & (stretch[column] > 0.0)
    )


def normalisers(
    contract: CompiledContract, clauses: ClausePlan, certified: Floats, stretch: Floats
) -> Floats:
    """psi float64 [K, S, C, A] from the certified values [K, S, n, M] (NaN: not measured); ``stretch`` [M].

    inf: no such bet on this slice; NaN: not on this slice, but on others of the kernel.
    """
    kernels, slices = certified.shape[:2]
    psi = np.full((kernels, slices, len(contract.clause_ids), len(TILTS)), np.inf)
    for clause in np.flatnonzero(bet_on(contract, clauses, stretch)).tolist():
        column, clip = int(contract.column[clause]), float(clauses.clip[clause])
        for kernel in range(kernels):
            for place in np.flatnonzero(contract.applies[clause]).tolist():
                values = np.minimum(certified[kernel, place, :, column], clip)
                psi[kernel, place, clause] = log_normaliser(values, float(stretch[column]))
    elsewhere = np.isfinite(psi).any(axis=1, keepdims=True) & np.isinf(psi)
    return np.where(elsewhere, np.nan, psi)


@compiled
def spread_evalues(evalues, x, fair):
    """Into ``evalues`` [SPREADS]: e-values of one observation, ``x`` in limits. False if there are no bets.

    fair: float64 [SPREADS], ``exp(-psi)`` (0: no bets); NaN: no bet on this observation, which counts only
    in the evidence pooled over slices.
    """
    if fair[0] == 0.0:
        return False
    if np.isnan(fair[0]):
        evalues[:] = 1.0
        return True
    power = math.exp(_TILT * x)
    for g in range(SPREADS):
        evalues[g] = min(power * fair[g], _MOST)
        power *= power
    return True
