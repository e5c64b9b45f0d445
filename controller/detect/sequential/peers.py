"""What a scrape of one replica is worth beside those of its peers, the replicas of the same kernel.

A queue that is long because much arrived is long everywhere; a slow host's is long alone. Evidence that a
replica departs therefore counts a scrape relative to its peers' last ones wherever those lie beyond the
limit: the null is "within the limit, or no worse than its peers". Fewer peers say less, so the threshold
goes by how many of them serve.

Axes: U replicas, S slices, C clauses; ``sums`` [U, S, C, 4] are those of this tick, ``news`` bool [U, S]
tells where anything came, ``latest`` [U, S, C, 4] holds the last scrapes, fading, and ``owner`` int64 [U]
the kernel.
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

#: Observations of peers, faded, below which none counts as received.
LEAST_RECEIVED = 0.05
_PROBE, _STEP_TIME, _BETTING = int(Source.PROBE), int(Source.STEP_TIME), int(Kind.BETTING)


def compared_clauses(contract: CompiledContract, clauses: ClausePlan) -> Flags:
    """bool [C]: clauses of which the last scrapes of peers are read, by ``weigh_by_peers`` or
    ``count_peers``.
    """
    weighed = clauses.kind == Kind.BETTING
    weighed &= (contract.source != Source.PROBE) & (contract.source != Source.STEP_TIME)
    return np.asarray(weighed | from_traffic(contract))


@compiled
def weigh_by_peers(worth, sums, news, latest, owner, plan):
    """Into ``worth`` [U, S + 1, C]: what the scrapes of a tick count, by slice and over all slices (last).

    1 where the peers are within the limit, limit over their value where they are not, 0 where no peer was
    received: a replica that stands alone is its kernel's affair. Only what is read is written. Of ``plan``,
    ``EvidencePlan``'s ``clauses`` and ``applies`` are read.
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
            if not _came(sums[u], news[u], c) or not _bad(sums[u], c, clause.is_rate):
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
    """Into ``received`` int64 [U]: how many other replicas of its kernel have served anybody lately.

    By clauses of ``traffic`` bool [C] on any slice, in this tick or not yet faded from ``latest``.
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
    """One replica has served anybody lately; sums are read where anything came, elsewhere they are 0."""
    for s in range(sums.shape[0]):
        came = news[s]
        for c in range(sums.shape[1]):
            if traffic[c] and (latest[s, c, COUNT] > LEAST_RECEIVED or (came and sums[s, c, COUNT] > 0.0)):
                return True
    return False


@compiled
def _came(sums, news, c):
    """Some observation of a replica came for clause ``c``: of the others no worth is read."""
    found = False
    for s in range(sums.shape[0]):
        found |= news[s] and sums[s, c, COUNT] > 0.0
    return found


@compiled
def _bad(sums, c, is_rate):
    """Some observation of a replica speaks against clause ``c``: what is 0 is 0 beside anybody."""
    if not is_rate:
        return True
    found = False
    for s in range(sums.shape[0]):
        found |= sums[s, c, OVER] > 0.0
    return found


@compiled
def _peers_of(others, u, owner):
    """Into ``others`` int64 [U]: the other replicas of ``u``'s kernel, in their order; how many."""
    found = 0
    for q in range(owner.shape[0]):
        if q != u and owner[q] == owner[u]:
            others[found] = q
            found += 1
    return found


@compiled
def _sums_of_peers(others, peers, s, c, sums, news, latest):
    """(observations, their sum, those over) of the last scrapes of the first ``peers`` of ``others``."""
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
    """What a scrape counts beside peers with these sums."""
    if count <= LEAST_RECEIVED:
        return 0.0
    value = scrape_observation(1.0, total / count, over / count, clause)
    return clause.null_mean / max(value, clause.null_mean)


@compiled
def note_scrapes(latest, sums, news, kept, compared):
    """The last scrape of each cell [S, C, 4] of one replica, of which ``kept`` is left a tick later.

    Of the clauses ``compared`` bool [C] alone: of the others nobody asks.
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
