"""Whether any policy could have recovered from an incident, and what an optimal one would have served.

The optimum knows from the onset which replicas break the contract on which slice, and what each replica
carries at most in steady state, without headroom. It may send any share of a slice to any replica that keeps
the contract there, without delays of detection, queues or moves. An incident that it cannot end, no policy
can end.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from contracts.scoring.episode import EpisodeRecord

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Relative excess of a load that is rounding.
_EXCESS_SLACK = 1e-9


def can_recover(
    record: EpisodeRecord, broken: Flags, start: int, needed_s: float, failed_ratio: float
) -> bool:
    """Whether replicas that keep the contract can carry all but ``failed_ratio`` of every slice for
    ``needed_s``.

    broken: bool [T, R, S], pairs that break the contract; start: row of the onset. Over every run of that
    length from the onset on, mean offered rates against the replicas that break nothing in it. True where
    capacities are not known or no run is long enough.
    """
    rows = math.ceil(needed_s / record.tick_s - 1e-9)
    if record.most_rps is None or len(broken) - start < rows:
        return True
    rate_rps = _over_runs(record.offered[start:].astype(np.float64), rows) / (rows * record.tick_s)
    usable = np.asarray(_over_runs(broken[start:].astype(np.float64), rows) == 0.0)
    return bool(carried(rate_rps * (1.0 - failed_ratio), usable, record.most_rps).any())


def _over_runs(values: Floats, rows: int) -> Floats:
    """Sums over every run of so many ``rows`` of ``values`` [T, ...], [T - rows + 1, ...]."""
    total = np.cumsum(values, axis=0)
    total[rows:] = total[rows:] - total[:-rows]
    return np.asarray(total[rows - 1 :])


def carried(rate_rps: Floats, usable: Flags, capacity_rps: Floats) -> Flags:
    """bool [W]: all of ``rate_rps`` [W, S] fits the ``usable`` [W, R, S] replicas of ``capacity_rps`` [R].

    By the supply-demand theorem (Gale, 1957): no set of slices asks for more than the replicas that any of
    them may use.
    """
    fits = np.empty(len(rate_rps), dtype=np.bool_)
    patterns, which = _patterns(usable.reshape(len(usable), -1))
    for index, pattern in enumerate(patterns):
        mine = which == index
        fits[mine] = _fits(rate_rps[mine], pattern.reshape(usable.shape[1:]), capacity_rps)
    return fits


def _patterns(rows: Flags) -> tuple[Flags, NDArray[np.intp]]:
    """The different ones of ``rows`` bool [W, N], and which of them each row is, [W].

    What is usable changes seldom, so only rows unlike the one before are sorted.
    """
    changes = np.ones(len(rows), dtype=np.bool_)
    np.any(rows[1:] != rows[:-1], axis=1, out=changes[1:])
    patterns, which = np.unique(rows[changes], axis=0, return_inverse=True)
    return patterns, which.reshape(-1)[np.cumsum(changes) - 1]


def _fits(rate_rps: Floats, usable: Flags, capacity_rps: Floats) -> Flags:
    """The same for one pattern, bool [R, S]; slices with the same replicas count as one."""
    groups, member = np.unique(usable, axis=1, return_inverse=True)
    asked = rate_rps @ (member.reshape(-1)[:, None] == np.arange(groups.shape[1]))
    sets = np.array(list(product((False, True), repeat=groups.shape[1])))
    supply = capacity_rps @ (groups[:, None, :] & sets).any(axis=2)
    return np.asarray((asked @ sets.T <= supply * (1.0 + _EXCESS_SLACK)).all(axis=1))


def regret_ratio(record: EpisodeRecord, broken: Flags, start: int, block_s: float) -> float:
    """Useful tokens that the optimum would have answered beyond those of ``record``, per offered token.

    From row ``start`` on, the optimum block by block of ``block_s`` at mean rates; NaN where capacities are
    not known or nothing was offered.
    """
    offered = float(record.offered_tokens[start:].sum())
    if record.most_rps is None or offered <= 0.0:
        return math.nan
    rows = max(1, round(block_s / record.tick_s))
    blocks = [slice(at, min(at + rows, len(broken))) for at in range(start, len(broken), rows)]
    usable = [np.asarray(~broken[block].any(axis=0)) for block in blocks]
    best = math.fsum(_useful_tokens(record, *one) for one in zip(usable, blocks, strict=True))
    return max(0.0, best - float(record.useful_tokens[start:].sum())) / offered


def _useful_tokens(record: EpisodeRecord, usable: Flags, block: slice) -> float:
    """Most useful tokens of the requests of ``block`` that the ``usable`` [R, S] replicas answer: a linear
    program over the shares of each slice on each replica.
    """
    assert record.most_rps is not None
    assert record.healthy_loss is not None
    offered, tokens = record.offered[block].sum(axis=0), record.offered_tokens[block].sum(axis=0)
    span_s = (block.stop - block.start) * record.tick_s
    replicas, slices = usable.shape
    worth = tokens * (1.0 - record.healthy_loss[record.replica_kernel])
    found = linprog(
        -worth.ravel(),
        A_ub=np.vstack([np.kron(np.eye(replicas), offered), np.kron(np.ones(replicas), np.eye(slices))]),
        b_ub=np.concatenate([record.most_rps * span_s, np.ones(slices)]),
        bounds=np.column_stack([np.zeros(usable.size), usable.ravel().astype(np.float64)]),
        method="highs",
    )
    return -float(found.fun)
