"""Which replicas hang: by their probes and progress together, or by a long silence of their engine.

Two rules. ``hang`` combines probes without an answer in time with counters that stand still; it is fast and
needs a prober. ``quarantine_pass.find_hung`` needs only counters that are read: requests run or wait, and
for a long time neither a step nor an answer came. A replica hangs if either rule says so.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from controller.cells import some_in
from controller.detect.clauses import moves_traffic
from controller.judge.replicas.departures import Case, Flags
from controller.judge.replicas.hang import (
    HangMemory,
    leaks_memory,
    note_timeouts,
    probes_time_out,
    stands_still,
    waits_for_blocks,
)
from controller.judge.replicas.quarantine_pass import RELAPSED, Bench, HungLimits, Progress, find_hung
from controller.perceive.step_time import observed_busy_s
from controller.state import out_as_hung


def timeouts_of(case: Case) -> HangMemory:
    """Probes without an answer in time, after this tick."""
    state = case.estimate.state
    busy_s = partial(observed_busy_s, state, case.telemetry, case.setup)
    return note_timeouts(state.hang, case.telemetry, case.estimate.fresh, state.progressed_at_s, busy_s)


def hung_replicas(case: Case, timeouts: HangMemory) -> Flags:
    """bool [B, R]: holds requests and makes no progress. timeouts: of probes, after this tick."""
    hung = np.zeros(case.ready.shape, dtype=np.bool_)
    now_s = case.estimate.state.now_s
    find_hung(hung, tuple(_progress(case)), now_s, case.owner, tuple(_limits(case)))
    silent = probes_time_out(timeouts, case.setup.hang_timeouts)
    if silent is not None:
        hung |= stands_still(silent, case.telemetry, _scraped_now(case))
    for b, r in np.argwhere(hung & ~case.estimate.state.quarantined):
        hung[b, r] = not _blocks_are_short(timeouts, case, b, r)
    return hung


def _blocks_are_short(timeouts: HangMemory, case: Case, b: int, r: int) -> bool:
    """Whether replica ``r`` of fleet ``b`` does no more than wait for KV blocks that are short everywhere.

    It is silent since its last answer, or since the first of its probes without one in time.
    """
    state, known = case.estimate.state, _scraped_now(case)[b]
    scraped_at_s = np.where(known & ~state.quarantined[b], state.scraped_at_s[b], np.nan)
    asked_at_s = float(timeouts["since_at_s"][b, r]) if timeouts else np.inf
    since_s = max(float(state.progressed_at_s[b, r]), asked_at_s if np.isfinite(asked_at_s) else -np.inf)
    return waits_for_blocks(case.telemetry.kv_used_ratio[b], scraped_at_s, case.owner, since_s, r)


def leaking(case: Case, quarantined: Flags) -> Flags:
    """bool [B, R]: holds memory and no request, unlike the replicas in rotation. quarantined: bool [B, R]."""
    return leaks_memory(case.telemetry, _scraped_now(case), case.ready & ~quarantined)


def note_ended_hangs(bench: Bench, condemned: Flags, kept: Flags, case: Case) -> None:
    """Replicas that left as hung are only not trusted yet (``RELAPSED``) once they have answered a probe.

    Or once nothing is received of them any more, neither scrapes nor probes: they may answer, and where the
    others are short the gateway finds out. Not those that are kept away, as they hang again or with their
    zone, that hold memory which nothing will free, or that break the contract by other evidence.
    bench: of this tick, changed in place; condemned: bool [B, R, S, C]; kept: bool [B, R].
    """
    state = case.estimate.state
    out = out_as_hung(bench.quarantined, bench.reason) & state.quarantined & ~kept
    if not some_in(out):
        return
    answered = state.probed_at_s.max(axis=2) > bench.quarantined_at_s
    broken = (condemned & moves_traffic(case.setup.contract)).any(axis=(2, 3))
    over = (answered | _untold(case)) & ~broken & ~leaking(case, bench.quarantined)
    bench.reason[out & over] = RELAPSED


def _untold(case: Case) -> Flags:
    """bool [B, R]: its scrapes are stale, and no probe of as long was answered or timed out."""
    state = case.estimate.state
    told_at_s = np.maximum(state.scraped_at_s, state.probed_at_s.max(axis=2))
    if state.hang:
        told_at_s = np.maximum(told_at_s, np.asarray(state.hang["timed_out_at_s"], dtype=np.float64))
    return np.asarray(state.now_s[:, None] - told_at_s > case.setup.contract.stale_after_s)


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
