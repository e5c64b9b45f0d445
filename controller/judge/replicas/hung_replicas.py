"""Which replicas hang: by their probes and progress together, or by a long silence of their engine.

Two rules. ``hang`` combines probes without an answer in time with counters that stand still; it is fast and
needs a prober. ``quarantine_pass.find_hung`` needs only counters that are read: requests run or wait, and
for a long time neither a step nor an answer came. A replica hangs if either rule says so.
"""

from __future__ import annotations

import numpy as np

from controller.judge.replicas.departures import Case, Flags
from controller.judge.replicas.hang import HangMemory, leaks_memory, probes_time_out, stands_still
from controller.judge.replicas.quarantine_pass import HungLimits, Progress, find_hung


def hung_replicas(case: Case, timeouts: HangMemory) -> Flags:
    """bool [B, R]: holds requests and makes no progress. timeouts: of probes, after this tick."""
    hung = np.zeros(case.ready.shape, dtype=np.bool_)
    now_s = case.estimate.state.now_s
    find_hung(hung, tuple(_progress(case)), now_s, case.owner, tuple(_limits(case)))
    silent = probes_time_out(timeouts, case.setup.hang_timeouts)
    if silent is None:
        return hung
    return hung | stands_still(silent, case.telemetry, _scraped_now(case))


def leaking(case: Case, quarantined: Flags) -> Flags:
    """bool [B, R]: holds memory and no request, unlike the replicas in rotation. quarantined: bool [B, R]."""
    return leaks_memory(case.telemetry, _scraped_now(case), case.ready & ~quarantined)


def _progress(case: Case) -> Progress:
    state = case.estimate.state
    return Progress(
        case.ready,
        np.ascontiguousarray(case.telemetry.running),
        np.ascontiguousarray(case.telemetry.waiting),
        state.scraped_at_s,
        state.progressed_at_s,
        state.counted_at_s,
        state.stepped_at_s,
        state.answered_rps,
        state.quarantined,
    )


def _limits(case: Case) -> HungLimits:
    options = case.setup.options
    return HungLimits(
        case.setup.contract.stale_after_s,
        options.hung_after_s,
        options.hung_answers,
        options.hung_least_s,
    )


def _scraped_now(case: Case) -> Flags:
    """bool [B, R]: ready, and the newest scrape is not stale."""
    state = case.estimate.state
    fresh = state.now_s[:, None] - state.scraped_at_s <= case.setup.contract.stale_after_s
    return np.asarray(case.ready & fresh)
