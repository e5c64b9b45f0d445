"""Compiled accumulation of a tick's observations into evidence, of one fleet, in their order of arrival.

Every observation updates the evidence that a clause is broken and, where recovery is tested, the evidence
that it is kept again (``evidence``). Axes: U subjects, S slices, C clauses, P probes; W, H and G are
``WIDTH``, ``HEALTHS`` and ``BETS``. The axis of streams over all slices has length 1, or 0 where they are not
watched.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from contracts.telemetry import Source
from controller.detect.clauses import Kind
from controller.detect.sequential.evidence import (
    BETS,
    STEP_TIME,
    grow_health,
    health_observation,
    probe_observation,
    scrape_observation,
    update_evidence,
    update_scrape,
    update_spread,
)
from controller.detect.sequential.spread import SPREADS, spread_evalues
from controller.detect.streams.passes import CEILING
from controller.detect.streams.protocol import Flags, Floats
from controller.detect.sums import COUNT, OVER, TOTAL

PROBE = int(Source.PROBE)
NONE, BETTING = int(Kind.NONE), int(Kind.BETTING)


class Cells(NamedTuple):
    """Memory into which observations of one fleet are accumulated."""

    by_slice: Floats  # [U, S, C, W]
    over_slices: Floats  # [U, 0 or 1, C, W], pooled over slices
    health: Floats  # [U, S, C, H]
    wanted: Flags  # [U, S, C], recovery is tested


class ProbeBatch(NamedTuple):
    """The probes of one fleet's tick, in their order."""

    received: Flags  # [P], probes that count
    replica: NDArray[np.int64]  # [P]
    slice: NDArray[np.int64]  # [P]
    values: Floats  # [P, M], by probe metric; NaN: not measured
    subject_of: NDArray[np.int64]  # [R], subject of each replica


@compiled
def accumulate_probes(cells, probes, plan):
    """Each received probe is one observation for every probe clause of its slice, for its subject."""
    cells, probes, plan = borrowed(cells), borrowed(probes), borrowed(plan)
    evalues, spread = np.empty(SPREADS), plan.fair.shape[0] > 0
    for p in range(probes.received.shape[0]):
        if not probes.received[p]:
            continue
        u, s = probes.subject_of[probes.replica[p]], probes.slice[p]
        for c in range(plan.clauses.shape[0]):
            clause = plan.clauses[c]
            if clause.source != PROBE or clause.kind == NONE or not plan.applies[c, s]:
                continue
            value = probes.values[p, clause.column]
            if np.isnan(value):
                continue
            y = probe_observation(value, clause)
            tilted = spread and spread_evalues(evalues, y / clause.null_mean, plan.fair[u, s, c])
            update_evidence(cells.by_slice[u, s, c], y, clause)
            if tilted and not np.isnan(plan.fair[u, s, c, 0]):
                update_spread(cells.by_slice[u, s, c], evalues)
            if cells.over_slices.shape[1]:
                update_evidence(cells.over_slices[u, 0, c], y, clause)
                if tilted:
                    update_spread(cells.over_slices[u, 0, c], evalues)
            if cells.wanted[u, s, c]:
                grow_health(cells.health[u, s, c], y, clause, plan.gain)


@compiled
def accumulate_prior_evidence(evidence, over_slices, active, probes, plan):
    """Add observations of probes to e-processes with one start time, of the ``active`` [U, 1, 1] subjects.

    evidence: [U, S, C, G] by slice; over_slices: [U, 1, C, G].
    """
    for p in range(probes.received.shape[0]):
        u = probes.subject_of[probes.replica[p]]
        if not probes.received[p] or not active[u, 0, 0]:
            continue
        s = probes.slice[p]
        for c in range(plan.clauses.shape[0]):
            clause = plan.clauses[c]
            if clause.source != PROBE or clause.kind != BETTING or not plan.applies[c, s]:
                continue
            value = probes.values[p, clause.column]
            if np.isnan(value):
                continue
            y = probe_observation(value, clause)
            for g in range(BETS):
                factor = 1.0 + clause.bets[g] * (y / clause.null_mean - 1.0)
                evidence[u, s, c, g] = min(evidence[u, s, c, g] * factor, CEILING)
                over_slices[u, 0, c, g] = min(over_slices[u, 0, c, g] * factor, CEILING)


@compiled
def accumulate_scrapes(cells, sums, news, worth, plan):
    """A tick's ``sums`` [U, S, C, 4] of traffic and gauges are one observation per stream.

    Pooled over slices they are one observation as well, whatever their size. news: bool [U, S], elsewhere the
    sums are 0. worth: [U, S + 1, C], weights of the observations as evidence, pooled over slices last
    ([0, ...]: all 1).
    """
    cells, plan = borrowed(cells), borrowed(plan)
    weighed, slices = worth.shape[0] > 0, sums.shape[1]
    for u in range(sums.shape[0]):
        if not news[u].any():
            continue
        for c in range(plan.clauses.shape[0]):
            clause = plan.clauses[c]
            if clause.source == PROBE or clause.kind == NONE:
                continue
            count, total, over = 0.0, 0.0, 0.0
            for s in range(slices):
                if not news[u, s] or not sums[u, s, c, COUNT] > 0.0 or not plan.applies[c, s]:
                    continue
                mine, sum_, beyond = sums[u, s, c, COUNT], sums[u, s, c, TOTAL], sums[u, s, c, OVER]
                count, total, over = count + mine, total + sum_, over + beyond
                y = scrape_observation(mine, sum_, beyond, clause)
                size = health_observation(y, mine, sum_, clause)
                share = worth[u, s, c] if weighed and clause.source != STEP_TIME else 1.0
                update_scrape(cells.by_slice[u, s, c], y * share, size * share, clause)
                if cells.wanted[u, s, c]:
                    grow_health(cells.health[u, s, c], size, clause, plan.gain)
            if count > 0.0 and cells.over_slices.shape[1]:
                y = scrape_observation(count, total, over, clause)
                size = health_observation(y, count, total, clause)
                share = worth[u, slices, c] if weighed and clause.source != STEP_TIME else 1.0
                update_scrape(cells.over_slices[u, 0, c], y * share, size * share, clause)
