"""What a scrape of one replica is worth beside those of its siblings.

A queue that is long because much arrived is long everywhere; a slow host's is long alone. Evidence that a
replica departs therefore counts a scrape in units of its siblings' last ones wherever those lie beyond the
limit: the null is "within the limit, or no worse than its siblings". Fewer siblings say less, so the
threshold goes by how many are heard.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from contracts.detect.fold_compiled import BETTING, COUNT, OVER, PROBE, TOTAL, scrape_value

#: Units of siblings, faded, below which nobody was heard.
LEAST_HEARD = 0.05


@njit(cache=True, error_model="numpy")
def weigh_by_siblings(worth, sums, news, latest, owner, plan):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Into ``worth`` [U, S + 1, C]: what the scrapes of a tick count, by slice and over all slices (last).

    1 where the siblings are within the limit, limit over their value where they are not, 0 where no sibling
    was heard: a replica that stands alone is its kernel's affair. sums: [U, S, C, 4] of this tick, news bool
    [U, S]; latest: [U, S, C, 4], earlier scrapes, fading; owner: int64 [U]. Only what is read is written.
    """
    slices = sums.shape[1]
    others = np.empty(owner.shape[0], np.int64)
    for u in range(sums.shape[0]):
        if not news[u].any():
            continue
        siblings = _siblings(others, u, owner)
        for c in range(plan.source.shape[0]):
            if plan.source[c] == PROBE or plan.kind[c] != BETTING or not _bad(sums[u], c, plan.is_rate[c]):
                continue
            count, total, over = 0.0, 0.0, 0.0
            for s in range(slices):
                n, t, o = (
                    _of_siblings(others, siblings, s, c, sums, news, latest)
                    if plan.applies[c, s]
                    else (0.0, 0.0, 0.0)
                )
                worth[u, s, c] = _worth(n, t, o, c, plan)
                count, total, over = count + n, total + t, over + o
            worth[u, slices, c] = _worth(count, total, over, c, plan)


@njit(cache=True, error_model="numpy")
def hear_siblings(heard, sums, latest, owner, traffic):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Into ``heard`` [U]: how many other replicas of its kernel have served anybody lately.

    By clauses of ``traffic`` [C] on any slice, in this tick or not yet faded from ``latest``.
    """
    heard[:] = 0
    for q in range(owner.shape[0]):
        if not _serves(sums[q], latest[q], traffic):
            continue
        for u in range(owner.shape[0]):
            if u != q and owner[u] == owner[q]:
                heard[u] += 1


@njit(cache=True, error_model="numpy")
def _serves(sums, latest, traffic):  # type: ignore[no-untyped-def]  # pragma: no cover
    for s in range(sums.shape[0]):
        for c in range(sums.shape[1]):
            if traffic[c] and (latest[s, c, COUNT] > LEAST_HEARD or sums[s, c, COUNT] > 0.0):
                return True
    return False


@njit(cache=True, error_model="numpy")
def _bad(sums, c, is_rate):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Some unit speaks against the clause: what is 0 is 0 beside anybody."""
    if not is_rate:
        return True
    found = False
    for s in range(sums.shape[0]):
        found |= sums[s, c, OVER] > 0.0
    return found


@njit(cache=True, error_model="numpy")
def _siblings(others, u, owner):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Into ``others``: the other replicas of ``u``'s kernel, in their order; how many."""
    found = 0
    for q in range(owner.shape[0]):
        if q != u and owner[q] == owner[u]:
            others[found] = q
            found += 1
    return found


@njit(cache=True, error_model="numpy")
def _of_siblings(others, siblings, s, c, sums, news, latest):  # type: ignore[no-untyped-def]  # pragma: no cover
    """(units, their sum, units over) of the last scrapes of the first ``siblings`` of ``others``."""
    count, total, over = 0.0, 0.0, 0.0
    for i in range(siblings):
        q = others[i]
        if news[q, s] and sums[q, s, c, COUNT] > 0.0:
            cell = sums[q, s, c]
        else:
            cell = latest[q, s, c]
        count, total, over = count + cell[COUNT], total + cell[TOTAL], over + cell[OVER]
    return count, total, over


@njit(cache=True, error_model="numpy")
def _worth(count, total, over, c, plan):  # type: ignore[no-untyped-def]  # pragma: no cover
    if count <= LEAST_HEARD:
        return 0.0
    value = scrape_value(
        1.0, total / count, over / count, plan.is_rate[c], plan.mirrored[c], plan.upper[c], plan.clip[c]
    )
    return plan.null_mean[c] / max(value, plan.null_mean[c])


@njit(cache=True, error_model="numpy")
def note_scrapes(latest, sums, news, kept):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The last scrape of each cell [S, C, 4] of one unit, fading since it came."""
    for s in range(latest.shape[0]):
        for c in range(latest.shape[1]):
            fresh = news[s] and sums[s, c, COUNT] > 0.0
            for x in range(4):
                latest[s, c, x] = sums[s, c, x] if fresh else latest[s, c, x] * kept
