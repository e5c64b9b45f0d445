"""Kernels that fail more of their attempts than others; failures that all kernels share put none at fault.

A broken gateway, a dead storage backend or a bad rollout of TLS certificates makes every kernel fail alike.
A move away from one kernel then lands on a kernel that fails as much and is more loaded. So a clause on
failures counts against a kernel only while the kernel is *at fault*: the evidence says that it fails a larger
share of its attempts than some other eligible kernel, or than all eligible kernels together. Attempts are
requests and probes, so an idle kernel is known by its probes before traffic moves there.

*Evidence.* Compare two sides in one tick. Given the total number of failures and one common failure rate, the
failures of the first side follow a hypergeometric law (Fisher's conditional law), whatever the rate is and
however it changes from tick to tick. The e-value of the tick is the likelihood ratio of ``ODDS`` times the
odds on the first side. The evidence is the sum over start times of products of e-values
(``detect.streams.eprocess``). Under one common rate, a false finding takes on average at least ``AT_FAULT``
ticks with failures.

*Bursts.* The attempts of a tick are not independent when a hung server fails all its requests at once. So the
e-value of a tick is clipped, which is the robust form of the test where some ticks are arbitrary (Huber
1965). Ticks without failures on either side lower the evidence: a steadily failing kernel has few such ticks,
whereas nearly all ticks after a burst are clean. With more attempts a burst can add more, and a clean tick
lowers the evidence by more.

*Return.* Evidence falls as fast as it rose. A kernel that lost its traffic and proves no worse than the
failover target is no longer at fault, and its clause on failures is certified again. Traffic then returns
home instead of moving on to the next kernel.

*Idle kernels* that are at fault, and whose probes lie beyond the limit, break the clause on every slice.
While nothing is known of the other kernels, they are assumed healthy: traffic is the only way to learn more.
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
from controller.state import ControllerState, not_evidence_for_kernel

Floats = NDArray[np.float64]


class Blame(NamedTuple):
    """Kernels that fail more than others, with the evidence for it."""

    more_failures: Floats  # [B, K, K + 1], evidence compared with each kernel and with all together, >= 0
    attempts: Floats  # [B, K, 2], ended and failed attempts of about one window
    at_fault: Flags  # [B, K]


def follow_failures(state: ControllerState, case: Case) -> Blame:
    """Update the comparison of kernels by the attempts of this tick; ``state`` is that after quarantine."""
    ended, failed = attempts_of(case, case.ready & ~not_evidence_for_kernel(state), by_replica=False)
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
    at_fault = (most >= AT_FAULT) | (state.at_fault & (most >= SAME)) | _unknown(attempts, case)
    return Blame(more, attempts, np.asarray(at_fault))


def able_kernels(state: ControllerState, case: Case) -> Flags:
    """bool [B, K], kernels that could take traffic: up, active, and certified on at least one slice.

    Clauses on failures are left out of this certification.
    """
    contract, stage = case.setup.contract, case.setup.fleet.stage
    moves = moves_traffic(contract).copy()
    moves[failing_clauses(contract)] = False
    certified = ~some_within(state.condemned & moves)
    serving = kernel_count(case.ready & ~state.quarantined, case.owner, case.kernels) > 0
    up = serving & (state.now_s[:, None] >= state.down_until_at_s)
    active = True if stage is None else stage == int(Stage.ACTIVE)
    return np.asarray(up & certified.any(axis=2) & active)


def _unknown(attempts: Floats, case: Case) -> Flags:
    """bool [B, K]: the other kernels have too few attempts for a comparison."""
    ended = attempts[:, :, 0]
    return np.asarray(ended.sum(axis=1, keepdims=True) - ended < case.setup.contract.min_samples)


def without_shared(
    found: tuple[Flags, Floats], state: ControllerState, blame: Blame, slowness: Flags | None, case: Case
) -> tuple[Flags, Floats, Flags]:
    """(alarm, excess, shared) of the kernels, with what they share removed.

    found: alarm and excess [B, K, S, C]. Failures that no kernel is at fault for and shared ``slowness``
    (``judge.shared_slowness``) are removed; failures of idle kernels at fault are added.
    shared: bool [B, K, 1, C], clauses that do not count against a kernel.
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
    """bool [B, K], at fault by evidence, and without weight; None: no kernel."""
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
    """float64 [B, K, 1, C], excess of the failures among recent attempts beyond the limits."""
    contract = case.setup.contract
    sums = np.zeros((*blame.attempts.shape[:2], len(contract.clause_ids), 4))
    sums[..., COUNT] = blame.attempts[:, :, :1]
    sums[..., COUNT + 1 :] = blame.attempts[:, :, 1:, None]  # values 0 or 1: same sum for means and for rates
    return excess_of_sums(sums, contract)[:, :, None]
