"""Cells of evidence: sums and counts over the replicas of a kernel, and tests over many cells at once.

Replicas are added in their order, so no result depends on the batch.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled

#: Least bad requests of a bad block: one late answer is no sign of a queue.
LEAST_BAD = 2.0
#: Least backlog that counts as overload, in requests. Chance explains smaller ones: at half load, a kernel is
#: four requests behind at one of a hundred arrivals. Where a request takes seconds, one alone is a backlog.
LEAST_BEHIND = 4.0


class News(NamedTuple):
    """Sums of one tick, of U replicas or kernels."""

    sums: NDArray[np.float64]  # [B, U, S, C, 4]
    news: NDArray[np.bool_]  # [B, U, S]; elsewhere the sums are 0


def pool(
    sums: NDArray[np.float64], included: NDArray[np.bool_], replica_kernel: NDArray[np.int64], kernels: int
) -> NDArray[np.float64]:
    """Sums [B, K, S, C, 4] of the ``included`` [B, R] replicas of each kernel, added in replica order."""
    pooled = np.zeros((sums.shape[0], kernels, *sums.shape[2:]))
    _pool_included(_flat(pooled), _flat(sums), included, replica_kernel)
    return pooled


def kernel_count(
    mask: NDArray[np.bool_], replica_kernel: NDArray[np.int64], kernels: int
) -> NDArray[np.int64]:
    """Number [B, K, ...] of replicas [B, R, ...] of each kernel where ``mask`` holds."""
    count = np.zeros((mask.shape[0], kernels, *mask.shape[2:]), dtype=np.int64)
    _add_up(_flat(count), _flat(mask), replica_kernel)
    return count


def pool_news(
    onto: News,
    given: News,
    included: NDArray[np.bool_],
    replica_kernel: NDArray[np.int64],
    clauses: NDArray[np.int64],
) -> None:
    """Add sums of one tick of the ``included`` [B, R] replicas to those of their kernels ``onto``.

    In replica order, and of the clauses at places ``clauses`` alone.
    """
    _pool_news(tuple(onto), tuple(given), included, replica_kernel, clauses)


def some_in(flags: NDArray[Any]) -> bool:
    """Whether any of ``flags`` [...] is True; for up to a thousand flags four times as fast as ``any``."""
    return bool(np.count_nonzero(flags))


def some_at(flags: NDArray[np.bool_], clauses: NDArray[np.int64]) -> bool:
    """Whether any of ``flags`` [B, U, S, C] is True at the places ``clauses``; without a copy."""
    return bool(_some_at(np.ascontiguousarray(flags), clauses))


def some_within(flags: NDArray[np.bool_], axes: int = 1) -> NDArray[np.bool_]:
    """``any`` of ``flags`` [..., X] over the last ``axes``, bool [...]; numpy is slow on short axes."""
    shape = flags.shape[: flags.ndim - axes]
    found = np.empty(shape, dtype=np.bool_)
    rows = np.ascontiguousarray(flags).reshape(prod(shape), prod(flags.shape[flags.ndim - axes :]))
    _some_of_rows(found.reshape(-1), rows)
    return found


def _flat(values: NDArray[Any]) -> NDArray[Any]:
    """[B, R, X] with all axes after the second merged; a view where the array is contiguous."""
    batch, replicas = values.shape[:2]
    return np.ascontiguousarray(values).reshape(batch, replicas, prod(values.shape[2:]))


@compiled
def _some_of_rows(found, rows):
    """Into ``found`` [N]: any of ``rows`` [N, X]; faster than stopping at the first one."""
    for n in range(rows.shape[0]):
        some = False
        for x in range(rows.shape[1]):
            some |= rows[n, x]
        found[n] = some


@compiled
def _some_at(flags, clauses):
    """``some_at``."""
    for c in clauses:
        found = False
        for b in range(flags.shape[0]):
            for u in range(flags.shape[1]):
                for s in range(flags.shape[2]):
                    found |= flags[b, u, s, c]
        if found:
            return True
    return False


@compiled
def _add_up(out, values, owner):
    """Add the replicas' values to their kernel's row, in replica order."""
    for b in range(values.shape[0]):
        for r in range(len(owner)):
            for x in range(values.shape[2]):
                out[b, owner[r], x] += values[b, r, x]


@compiled
def _pool_included(out, sums, included, owner):
    """Add the sums [B, R, X] of the included [B, R] replicas to their kernel's, in replica order."""
    for b in range(sums.shape[0]):
        for r in range(len(owner)):
            if not included[b, r]:
                continue
            for x in range(sums.shape[2]):
                out[b, owner[r], x] += sums[b, r, x]


@compiled
def _pool_news(pooled, given, included, owner, clauses):
    """Add sums of one tick to the kernels' sums; only cells with news have any."""
    pooled, given = borrowed((News(*pooled), News(*given)))
    for b in range(given.sums.shape[0]):
        for r in range(len(owner)):
            for s in range(given.sums.shape[2]):
                if not included[b, r] or not given.news[b, r, s]:
                    continue
                pooled.news[b, owner[r], s] = True
                for c in clauses:
                    for i in range(4):
                        pooled.sums[b, owner[r], s, c, i] += given.sums[b, r, s, c, i]


@compiled
def by_cell(flags):
    """``flags`` bool [B, U, S, C] with slices and clauses on one axis, as ``some_of`` reads them."""
    return borrowed(flags).reshape((flags.shape[0], flags.shape[1], flags.shape[2] * flags.shape[3]))


@compiled
def some_of(cells, b, u):
    """Whether any of ``cells[b, u]`` [S * C] is True; faster than stopping at the first one, or a view."""
    found = False
    for x in range(cells.shape[2]):
        found |= cells[b, u, x]
    return found


@compiled(inline="always")
def is_bad(ended, bad, tolerated):
    """1 where more requests of a block failed or came late than the contract tolerates, else 0."""
    return 1.0 if ended > 0.0 and bad >= LEAST_BAD and bad > tolerated else 0.0


@compiled(inline="always")
def kernel_is_bad(ended, bad, tolerated, b, k):
    """``is_bad`` of the requests of all slices on kernel ``k``; arguments as in ``kernel_requests``."""
    all_ended, all_bad, most = kernel_requests(ended, bad, tolerated, b, k)
    return is_bad(all_ended, all_bad, most) > 0.0


@compiled
def kernel_requests(ended, bad, tolerated, b, k):
    """Requests of all slices on kernel ``k``: those that ended, the bad ones, and the tolerated bad ones.

    ended, bad: [B, S, K]; tolerated: float64 [S], tolerated share of a slice's requests.
    """
    all_ended, all_bad, most = 0.0, 0.0, 0.0
    for s in range(len(tolerated)):
        all_ended += ended[b, s, k]
        all_bad += bad[b, s, k]
        most += tolerated[s] * ended[b, s, k]
    return all_ended, all_bad, most
