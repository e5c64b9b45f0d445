"""Which kernels fail more than the others do: no kernel is at fault for failures that all of them share.

A front that is broken, a dead store, a bad rollout of certificates: where every kernel fails alike, each move
away from one of them lands on a kernel that fails as much and is fuller. So a clause on failures speaks
against a kernel only while it is *at fault*: by evidence it fails more of its attempts than some other kernel
that could take its traffic, or than all of these together. Attempts are requests and probes alike, so an idle
kernel is known by its probes, before anything is moved there.

*Evidence.* Of what two sides attempted in a tick, given how many failed in all, one common rate gives the
first side a hypergeometric number of them (Fisher's conditional law), whatever the rate is and however it
changes from tick to tick. The e-value of a tick is its likelihood ratio at ``ODDS`` times the odds on the
first side; evidence is the sum over starts of their products (``detect.streams.eprocess``). Under one common
rate it takes on average at least ``AT_FAULT`` ticks with failures to be at fault by chance.

*Bursts.* Attempts of a tick are no independent trials where a hung server fails at once all that it held. So
a tick's e-value is clipped, which is the robust form of the test where some ticks may bring anything (Huber
1965), and attempts of both sides that all end well take evidence back: somebody who fails steadily has few
such ticks, and after a burst nearly all are. The more both attempt the more a burst can bring, and the more
clean attempts say.

*Going back.* Evidence falls as fast as it rose. A kernel that was left and turns out to be no worse than
where its traffic went is at fault no more, and its clause on failures is certified again: traffic goes home,
and not on to the next kernel.

*Idle kernels* that are at fault and beyond the limit by their probes break the clause on every slice. Where
nothing is known of the others everything is as if they were healthy: to try one is the only way to know.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import Source
from controller.cells import kernel_count, some_in, some_within
from controller.detect.clauses import applies, failing_clauses, moves_traffic
from controller.detect.sums import COUNT, excess_of_sums
from controller.fleet import Stage
from controller.judge.kernels.more_failures_pass import AT_FAULT, SAME, Sides, follow_evidence
from controller.judge.replicas.attempts_pass import MEMORY_WINDOWS
from controller.judge.replicas.departures import Case, Flags
from controller.judge.replicas.whose_failures import attempts_of
from controller.state import ControllerState, speaks_for_nobody

Floats = NDArray[np.float64]


class Blame(NamedTuple):
    """Who fails more than the others, and what that stands on."""

    more_failures: Floats  # [B, K, K + 1], evidence against each other kernel and against all, >= 0
    attempts: Floats  # [B, K, 2], ended and failed ones of about one window
    at_fault: Flags  # [B, K]


def follow_failures(state: ControllerState, case: Case) -> Blame:
    """What this tick says; ``state`` as quarantine left it."""
    ended, failed = attempts_of(case, case.ready & ~speaks_for_nobody(state), by_replica=False)
    since_s = case.estimate.since_s[:, None, None]
    window_s = case.setup.contract.window_s
    attempts = state.attempts * np.exp(-since_s / window_s)
    attempts[..., 0] += ended
    attempts[..., 1] += failed
    if not some_in(state.more_failures) and not some_in(failed):
        return Blame(state.more_failures, attempts, _unknown(attempts, case))
    able = able_kernels(state, case)
    more = state.more_failures * np.exp(-since_s / (MEMORY_WINDOWS * window_s))
    follow_evidence(more, tuple(Sides(ended, failed, able)))
    others = able[:, None, :] & ~np.eye(case.kernels, dtype=np.bool_)
    most = np.maximum(np.where(others, more[:, :, :-1], 0.0).max(axis=2), more[:, :, -1])
    found = (most >= AT_FAULT) | (state.at_fault & (most >= SAME)) | _unknown(attempts, case)
    return Blame(more, attempts, np.asarray(found))


def able_kernels(state: ControllerState, case: Case) -> Flags:
    """bool [B, K], who could take traffic: up, active, and certified somewhere but for failures."""
    contract, stage = case.setup.contract, case.setup.fleet.stage
    moves = moves_traffic(contract).copy()
    moves[failing_clauses(contract)] = False
    certified = ~some_within(state.condemned & moves)
    serving = kernel_count(case.ready & ~state.quarantined, case.owner, case.kernels) > 0
    up = serving & (state.now_s[:, None] >= state.down_until_at_s)
    active = True if stage is None else stage == int(Stage.ACTIVE)
    return np.asarray(up & certified.any(axis=2) & active)


def _unknown(attempts: Floats, case: Case) -> Flags:
    """bool [B, K]: the others have shown too little to be compared with."""
    ended = attempts[:, :, 0]
    return np.asarray(ended.sum(axis=1, keepdims=True) - ended < case.setup.contract.min_samples)


def without_shared(
    found: tuple[Flags, Floats], state: ControllerState, blame: Blame, slowness: Flags | None, case: Case
) -> tuple[Flags, Floats, Flags]:
    """(alarm, excess, shared) of the kernels: ``found`` alarm and excess [B, K, S, C] without failures and
    ``slowness`` (``judge.shared_slowness``) that others share, and with failures of idle kernels at fault;
    shared [B, K, 1, C]: clauses that say nothing against a kernel.
    """
    alarm, excess = found
    contract = case.setup.contract
    places = _on_failures(contract)
    shared = np.asarray(places & ~blame.at_fault[:, :, None, None])
    shared = shared if slowness is None else shared | slowness
    idle = _idle_at_fault(state, blame)
    if idle is not None:
        by_probes = _by_probes(blame, case)
        more = idle[:, :, None, None] & places & (by_probes > 0.0) & applies(contract)
        alarm, excess = alarm | more, np.where(more, np.maximum(excess, by_probes), excess)
    if not bool((alarm & shared).any()):
        return alarm, excess, shared
    return alarm & ~shared, np.where(shared, 0.0, excess), shared


def _idle_at_fault(state: ControllerState, blame: Blame) -> Flags | None:
    """bool [B, K], at fault by evidence, and without weight; None: nobody."""
    if not some_in(blame.more_failures):
        return None
    proven = blame.at_fault & (blame.more_failures.max(axis=2) >= SAME)
    idle = np.asarray(proven & (state.table[:, :, :-1].sum(axis=1) == 0.0))
    return idle if some_in(idle) else None


@lru_cache(maxsize=64)
def _on_failures(contract: CompiledContract) -> Flags:
    """bool [C]: clauses on failed attempts."""
    return np.asarray(contract.source == Source.FAILED)


def _by_probes(blame: Blame, case: Case) -> Floats:
    """float64 [B, K, 1, C], how far the attempts of late are beyond the limits, of failures."""
    contract = case.setup.contract
    sums = np.zeros((*blame.attempts.shape[:2], len(contract.clause_ids), 4))
    sums[..., COUNT] = blame.attempts[:, :, :1]
    sums[..., COUNT + 1 :] = blame.attempts[:, :, 1:, None]  # of 0 and 1: clauses on means and on rates alike
    return excess_of_sums(sums, contract)[:, :, None]
