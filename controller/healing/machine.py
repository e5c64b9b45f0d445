"""One tick of a replica's re-admission: a pure function of its state, what is observed, and its terms.

The laws, each with a test:

* a replica gets no traffic before all of ``verify_probes`` agreed, and no step without the probes of that
  step;
* a probe that disagrees, or is not answered, takes all traffic back and starts over after a doubled wait;
* otherwise the share never falls, and reaches 1 no earlier than ``readmit_over_s`` after the first step;
* a flush or restart that did not happen counts as no step;
* ``HEALED`` and ``FAILED`` are final.

``held_back`` applies the shares to a routing table: the kernel of a returning replica carries less, but no
slice loses its last server.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from controller.healing.records import (
    Flush,
    HealingOrder,
    HealingPhase,
    HealingSight,
    HealingState,
    HealingTerms,
)

_ORDERS = {
    HealingPhase.RESTARTING: HealingOrder.RESTART,
    HealingPhase.FLUSHING: HealingOrder.FLUSH,
    HealingPhase.PROBING: HealingOrder.PROBE,
    HealingPhase.READMITTING: HealingOrder.PROBE,
}


def begin(now_s: float, terms: HealingTerms) -> HealingState:
    """State of a replica at the end of its quarantine, or of its drill."""
    return HealingState(phase=_first(terms), since_at_s=now_s)


def step(state: HealingState, sight: HealingSight, terms: HealingTerms) -> HealingState:
    """The state after one tick in which ``sight`` was observed."""
    if state.ended:
        return state
    if state.phase is HealingPhase.WAITING:
        if sight.now_s - state.since_at_s < state.wait_s:
            return state
        return HealingState(phase=_first(terms), since_at_s=sight.now_s, attempt=state.attempt + 1)
    if sight.failed > 0:
        return _setback(state, sight, terms)
    if state.phase is HealingPhase.RESTARTING:
        return _restarted(state, sight, terms)
    if state.phase is HealingPhase.FLUSHING:
        return _flushed(state, sight, terms)
    counted = replace(state, agreed=state.agreed + sight.agreed, verified=state.verified + sight.agreed)
    return _probed(counted, sight, terms)


def order(state: HealingState, terms: HealingTerms) -> HealingOrder:
    """The order for the caller; it is repeated until its outcome is observed."""
    if state.phase is HealingPhase.READMITTING and not lacking(state, terms):
        return HealingOrder.NOTHING
    return _ORDERS.get(state.phase, HealingOrder.NOTHING)


def lacking(state: HealingState, terms: HealingTerms) -> int:
    """Probes that must still agree before the next phase or step."""
    readmitting = state.phase is HealingPhase.READMITTING
    return max(0, (terms.step_probes if readmitting else terms.verify_probes) - state.agreed)


def share(state: HealingState, terms: HealingTerms) -> float:
    """Share of the traffic of a full replica, 0..1."""
    if state.phase is HealingPhase.READMITTING:
        return state.step / (terms.steps + 1)
    return float(state.phase is HealingPhase.HEALED)


def line(state: HealingState, terms: HealingTerms) -> str:
    """State in one line, for people and logs."""
    attempt = f" (attempt {state.attempt})" if state.attempt > 1 else ""
    why = f": {state.told}" if state.told else ""
    told = {
        HealingPhase.RESTARTING: "is restarted",
        HealingPhase.FLUSHING: "prefix cache is flushed",
        HealingPhase.PROBING: f"{terms.verify_probes} generation probes must agree",
        HealingPhase.READMITTING: f"gets {share(state, terms):.0%} of its traffic after {state.verified}"
        " probes that agreed",
        HealingPhase.WAITING: f"not healed, tried again after {state.wait_s:g} s",
        HealingPhase.HEALED: f"healed: {state.verified} probes agreed",
        HealingPhase.FAILED: "not healed",
    }[state.phase]
    return f"{told}{attempt}{why}"


def _first(terms: HealingTerms) -> HealingPhase:
    if terms.restart:
        return HealingPhase.RESTARTING
    return HealingPhase.FLUSHING if terms.reset_caches else HealingPhase.PROBING


def _restarted(state: HealingState, sight: HealingSight, terms: HealingTerms) -> HealingState:
    """A restart empties the cache as well."""
    if sight.restarted is None:
        return state
    if not sight.restarted:
        return _setback(state, sight, terms)
    return replace(state, phase=HealingPhase.PROBING, since_at_s=sight.now_s, flush=Flush.RESTARTED)


def _flushed(state: HealingState, sight: HealingSight, terms: HealingTerms) -> HealingState:
    if sight.flush is None:
        return state
    if sight.flush is Flush.FAILED:
        return _setback(state, sight, terms)
    told = str(sight.flush) if sight.flush is not Flush.FLUSHED else ""
    return replace(state, phase=HealingPhase.PROBING, since_at_s=sight.now_s, flush=sight.flush, told=told)


def _probed(state: HealingState, sight: HealingSight, terms: HealingTerms) -> HealingState:
    """The first or next step, or healed, once all required probes agreed."""
    if state.phase is HealingPhase.PROBING:
        done = state.agreed >= terms.verify_probes
        last = terms.readmit_over_s == 0.0
    else:
        passed_s = sight.now_s - state.since_at_s
        done = state.agreed >= terms.step_probes and passed_s >= terms.readmit_over_s / terms.steps
        last = state.step >= terms.steps
    if not done:
        return state
    phase = HealingPhase.HEALED if last else HealingPhase.READMITTING
    return replace(state, phase=phase, since_at_s=sight.now_s, step=state.step + 1, agreed=0)


def _setback(state: HealingState, sight: HealingSight, terms: HealingTerms) -> HealingState:
    """Back to the start after a wait that doubles, or failed after the last attempt."""
    told = sight.told or "no reason was given"
    over = 0 < terms.attempts <= state.attempt
    wait_s = min(terms.wait_s * 2.0 ** min(state.attempt - 1, 60), terms.most_wait_s)
    return HealingState(
        phase=HealingPhase.FAILED if over else HealingPhase.WAITING,
        since_at_s=sight.now_s,
        attempt=state.attempt,
        wait_s=0.0 if over else wait_s,
        flush=state.flush,
        told=told,
        verified=state.verified,
    )


def held_back(
    table: NDArray[np.float64],
    serving: NDArray[np.bool_],
    shares: NDArray[np.float64],
    owner: NDArray[np.int64],
) -> NDArray[np.float64]:
    """``table`` [S, K + 1] of one fleet, reduced where a kernel has only replicas that are being re-admitted.

    serving: bool [R], in rotation and reachable; shares: [R], 0..1, of the traffic of a full replica; owner:
    [R], kernel of a replica. A kernel with a replica at share 1 keeps its weight. Any other carries at most
    the sum of its shares, and the rest of the row goes to the row's other kernels in proportion. A row
    without another kernel stays as it is: an unverified replica is better than none.
    """
    kernels = table.shape[1] - 1
    there = np.bincount(owner[serving], minlength=kernels) > 0
    carried = np.bincount(owner[serving], shares[serving], minlength=kernels)
    factor = np.where(there, np.minimum(carried, 1.0), 0.0)
    kept = table[:, :-1] * factor
    whole, left = table[:, :-1].sum(axis=1), kept.sum(axis=1)
    found = np.array(table, dtype=np.float64)
    able = left > 0.0
    found[able, :-1] = kept[able] * (whole[able] / left[able])[:, None]
    return found
