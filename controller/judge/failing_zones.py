"""When the failures of several kernels are those of their zone.

A zone that loses its network, its storage or its credentials fails a share of the requests of whatever runs
in it. Where replicas of two kernels in one zone are out because they fail, and of no other zone, further
replicas there are likely to fail as well: their own estimate beyond the limit is enough, before it is proven.
That counts for who serves little, of whom a proof would take minutes. Who shows no failure stays.
"""

from __future__ import annotations

import numpy as np

from controller.cells import kernel_count
from controller.detect.clauses import failing_clauses
from controller.detect.sums import excess_of_sums
from controller.judge.departures import Case, Flags
from controller.judge.own_clock import LEAST_KERNELS, zones_of
from controller.judge.quarantine_pass import ERRORS


def failing_with_their_zone(case: Case) -> Flags | None:
    """bool [B, R, S, C]: in a zone that fails, and beyond the limit of a clause on failures; None: nobody."""
    state, contract = case.estimate.state, case.setup.contract
    out = state.quarantined & (state.quarantine_reason == ERRORS)
    if not bool(out.any()):
        return None
    inside = struck_zones(out, case) & case.ready & ~state.quarantined
    if not bool(inside.any()):
        return None
    found = np.zeros((*inside.shape, len(contract.slices), len(contract.clause_ids)), dtype=np.bool_)
    for c in failing_clauses(contract):
        found[..., c] = excess_of_sums(case.verdicts.replicas.judged, contract)[..., c] > 0.0
    found &= inside[:, :, None, None]
    return found if bool(found.any()) else None


def struck_zones(struck: Flags, case: Case) -> Flags:
    """bool [B, R]: replicas of two kernels in its zone are ``struck`` [B, R], and of no other zone any."""
    zones = zones_of(case.setup.layout.zones, len(case.owner))
    found = np.zeros(struck.shape, dtype=np.bool_)
    for zone in range(int(zones.max(initial=-1)) + 1):
        inside = zones == zone
        several = (kernel_count(struck & inside, case.owner, case.kernels) > 0).sum(axis=1) >= LEAST_KERNELS
        alone = ~(struck & ~inside).any(axis=1)
        found |= (several & alone)[:, None] & inside
    return found
