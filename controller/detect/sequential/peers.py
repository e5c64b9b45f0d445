"""Weight of a scrape of one replica relative to its peers, the other replicas of the same kernel.

A queue caused by load is long on all replicas; that of a slow host is long only there. So evidence that a
replica departs weighs its scrape by its peers' last scrapes wherever those lie beyond the limit. The null is
"within the limit, or no worse than its peers". Fewer peers are less evidence, so the threshold depends on the
number of peers that serve.

Axes: U replicas, S slices, C clauses. ``sums`` [U, S, C, 4] are those of this tick; ``news`` bool [U, S]
marks where there are observations; ``latest`` [U, S, C, 4] holds the last scrapes, with decay; ``owner``
int64 [U] is the kernel of each replica.
"""

from __future__ import annotations

import numpy as np

from contracts.compiled.contract import CompiledContract
from contracts.jit import borrowed, compiled
from contracts.telemetry import Source
from controller.detect.clauses import ClausePlan, Kind, from_traffic
from controller.detect.sequential.evidence import scrape_observation
from controller.detect.streams.protocol import Flags
from controller.detect.sums import COUNT, OVER, TOTAL

#: Least observations of peers, after decay, that count as received.
LEAST_RECEIVED = 0.05
_PROBE, _STEP_TIME, _BETTING = int(Source.PROBE), int(Source.STEP_TIME), int(Kind.BETTING)


def compared_clauses(contract: CompiledContract, clauses: ClausePlan) -> Flags:
    """bool [C]: clauses whose last scrapes of peers are read, by ``weigh_by_peers`` or ``count_peers``."""
    weighed = clauses.kind == Kind.BETTING
    weighed &= (contract.source != Source.PROBE) & (contract.source != Source.STEP_TIME)
    return np.asarray(weighed | from_traffic(contract))


@compiled
def weigh_by_peers(worth, sums, news, latest, owner, plan):
    """Into ``worth`` [U, S + 1, C]: weights of the scrapes of a tick, by slice and over all slices (last).

    1 where the peers are within the limit, limit over their value where they are not, 0 without peers: a
    replica without peers is judged by its kernel's streams. Only values that are read are written. Of
    ``plan``, an ``EvidencePlan``, ``clauses`` and ``applies`` are read.
    """
    plan, slices = borrowed(plan), sums.shape[1]
    sums, news, latest = borrowed(sums), borrowed(news), borrowed(latest)
    others = np.empty(owner.shape[0], np.int64)
    for u in range(sums.shape[0]):
        if not news[u].any():
            continue
        peers = _peers_of(others, u, owner)
        for c in range(plan.clauses.shape[0]):
            clause = plan.clauses[c]
            if clause.source in (_PROBE, _STEP_TIME) or clause.kind != _BETTING:
                continue
            if not _has_observation(sums[u], news[u], c) or not _is_against(sums[u], c, clause.is_rate):
                continue
            count, total, over = 0.0, 0.0, 0.0
            for s in range(slices):
                n, t, o = 0.0, 0.0, 0.0
                if plan.applies[c, s]:
                    n, t, o = _sums_of_peers(others, peers, s, c, sums, news, latest)
                worth[u, s, c] = _worth(n, t, o, clause)
                count, total, over = count + n, total + t, over + o
            worth[u, slices, c] = _worth(count, total, over, clause)


@compiled
def count_peers(received, sums, news, latest, owner, traffic):
    """Into ``received`` int64 [U]: number of other replicas of its kernel that served requests recently.

    Recently: observations of clauses ``traffic`` bool [C] on any slice, in this tick or in ``latest``.
    """
    sums, news, latest = borrowed(sums), borrowed(news), borrowed(latest)
    received[:] = 0
    for q in range(owner.shape[0]):
        if not _serves(sums[q], news[q], latest[q], traffic):
            continue
        for u in range(owner.shape[0]):
            if u != q and owner[u] == owner[q]:
                received[u] += 1


@compiled
def _serves(sums, news, latest, traffic):
    """Whether one replica served requests recently; sums are read where there are observations, else 0."""
    for s in range(sums.shape[0]):
        is_new = news[s]
        for c in range(sums.shape[1]):
            if traffic[c] and (latest[s, c, COUNT] > LEAST_RECEIVED or (is_new and sums[s, c, COUNT] > 0.0)):
                return True
    return False


@compiled
def _has_observation(sums, news, c):
    """Whether a replica has an observation of clause ``c``; without one, its weight is not read."""
    received = False
    for s in range(sums.shape[0]):
        received |= news[s] and sums[s, c, COUNT] > 0.0
    return received


@compiled
def _is_against(sums, c, is_rate):
    """Whether an observation of a replica is against clause ``c``; an observation of 0 needs no weight."""
    if not is_rate:
        return True
    over = False
    for s in range(sums.shape[0]):
        over |= sums[s, c, OVER] > 0.0
    return over


@compiled
def _peers_of(others, u, owner):
    """Into ``others`` int64 [U]: the other replicas of ``u``'s kernel, in order; returns their number."""
    count = 0
    for q in range(owner.shape[0]):
        if q != u and owner[q] == owner[u]:
            others[count] = q
            count += 1
    return count


@compiled
def _sums_of_peers(others, peers, s, c, sums, news, latest):
    """(count, sum, count over the threshold) of the last scrapes of the first ``peers`` of ``others``."""
    count, total, over = 0.0, 0.0, 0.0
    for i in range(peers):
        q = others[i]
        if news[q, s] and sums[q, s, c, COUNT] > 0.0:
            cell = sums[q, s, c]
        else:
            cell = latest[q, s, c]
        count, total, over = count + cell[COUNT], total + cell[TOTAL], over + cell[OVER]
    return count, total, over


@compiled
def _worth(count, total, over, clause):
    """Weight of a scrape relative to peers with these sums."""
    if count <= LEAST_RECEIVED:
        return 0.0
    value = scrape_observation(1.0, total / count, over / count, clause)
    return clause.null_mean / max(value, clause.null_mean)


@compiled
def note_scrapes(latest, sums, news, kept, compared):
    """Update the last scrape of each cell [S, C, 4] of one replica; older ones decay by the factor ``kept``.

    Only clauses ``compared`` bool [C] are updated, because the others are never read.
    """
    for s in range(latest.shape[0]):
        for c in range(latest.shape[1]):
            if not compared[c]:
                continue
            if news[s] and sums[s, c, COUNT] > 0.0:
                for x in range(4):
                    latest[s, c, x] = sums[s, c, x]
            elif latest[s, c, COUNT] > 0.0:
                for x in range(4):
                    latest[s, c, x] *= kept
