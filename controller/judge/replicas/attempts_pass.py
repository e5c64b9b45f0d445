"""Attempts of a tick, and how much likelier failures fell on some of them at higher odds than by chance."""

from __future__ import annotations

from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from contracts.telemetry import ProbeOutcome

# Plain integers, because compiled code does not know the enumeration.
_ANSWERED, PROBE_FAILED, PROBE_REFUSED = (
    int(outcome) for outcome in (ProbeOutcome.ANSWERED, ProbeOutcome.FAILED, ProbeOutcome.REFUSED)
)
#: Odds of a failure over those of the other side that evidence is of: less is not worth a move.
ODDS = 4.0
#: A likelihood ratio is computed up to here.
MOST_RATIO = 2e7
#: Evidence from which a replica fails more than its kernel: by chance alone once in so many blocks with
#: failures. Asked of who is in alarm already, so that it decides only whose the failures are.
FAILS_MORE = 1e3
#: Failures come in bursts. So the evidence of one block is taken up to here: two of them prove nothing,
#: whatever they bring.
MOST_OF_A_BLOCK = 31.0
#: Windows after which evidence that nothing renews is forgotten.
MEMORY_WINDOWS = 5.0
#: Attempts of a kernel in a block at least; of a single one there is nothing to compare.
LEAST_ATTEMPTS = 20.0
#: Columns of what is remembered of a replica: evidence, and attempts and failed ones of the open block.
EVIDENCE, ENDED, FAILED = range(3)
COLUMNS = 3
#: Evidence is kept up to here, so that it falls as soon as failures are the same.
_MOST = 20.0 * FAILS_MORE
#: Ways are counted relative to the first, and rescaled beyond this.
_LARGE = 1e100


class Tried(NamedTuple):
    """Requests and probes of a tick, by replica."""

    answered: NDArray[np.int64]  # [B, R], attempts
    failed: NDArray[np.int64]  # [B, R]
    replica: NDArray[np.int64]  # [B, P], of each probe
    outcome: NDArray[np.int8]  # [B, P], a ``ProbeOutcome``


@compiled
def count_attempts(ended, failed, tried, serving, shares, owner):
    """Into ``ended`` and ``failed`` [B, K], 0 so far: attempts of the ``serving`` [B, R], whole numbers.

    shares: float64 [B, K], of the failed requests those that count. A probe that failed or was refused
    failed as a request would; one that ran out of time may only be late.
    """
    tried = borrowed(Tried(*tried))
    for b in range(serving.shape[0]):
        for r in range(len(owner)):
            if serving[b, r]:
                ended[b, owner[r]] += tried.answered[b, r]
                failed[b, owner[r]] += tried.failed[b, r]
        for k in range(ended.shape[1]):
            failed[b, k] = np.rint(failed[b, k] * shares[b, k])
            ended[b, k] += failed[b, k]
        for p in range(tried.replica.shape[1]):
            r, outcome = tried.replica[b, p], tried.outcome[b, p]
            if serving[b, r]:
                badly = outcome in (PROBE_FAILED, PROBE_REFUSED)
                ended[b, owner[r]] += badly or outcome == _ANSWERED
                failed[b, owner[r]] += badly


@compiled
def odds_ratio(ended, failed, other_ended, other_failed):
    """Likelihood ratio of ``ODDS`` times the odds on the first side over one common rate, given how many
    failed in all: ``ODDS ** failed`` over its mean under the hypergeometric law. Whole numbers.
    """
    drawn = failed + other_failed
    least, most = max(0.0, drawn - other_ended), min(drawn, ended)
    ways, ways_all, tilted_all, shift = 1.0, 1.0, 1.0, 0.0
    tilted, u = 1.0, least
    while u < most:
        ratio = (ended - u) * (drawn - u) / ((u + 1.0) * (other_ended - drawn + u + 1.0))
        ways, tilted, u = ways * ratio, tilted * ratio * ODDS, u + 1.0
        ways_all += ways
        tilted_all += tilted
        if tilted_all > _LARGE:
            tilted, tilted_all, shift = tilted / _LARGE, tilted_all / _LARGE, shift + log(_LARGE)
        if ways_all > _LARGE:
            ways, ways_all, shift = ways / _LARGE, ways_all / _LARGE, shift - log(_LARGE)
    exponent = (failed - least) * log(ODDS) + log(ways_all) - log(tilted_all) - shift
    return np.exp(min(exponent, log(MOST_RATIO)))


@compiled
def add_tick(memory, ended, failed, owner, kernels):
    """Add a tick to ``memory`` [B, R, COLUMNS]; ended, failed: float64 [B, R], whole numbers."""
    memory = borrowed(memory)
    for b in range(memory.shape[0]):
        for k in range(kernels):
            all_ended, all_failed = 0.0, 0.0
            for r in range(len(owner)):
                if owner[r] == k:
                    memory[b, r, ENDED] += ended[b, r]
                    memory[b, r, FAILED] += failed[b, r]
                    all_ended += memory[b, r, ENDED]
                    all_failed += memory[b, r, FAILED]
            if all_ended >= LEAST_ATTEMPTS:
                for r in range(len(owner)):
                    if owner[r] == k:
                        _end_block(memory[b, r], all_ended, all_failed)


@compiled
def _end_block(one, all_ended, all_failed):
    """Of one replica's memory [COLUMNS], beside what its kernel ended and failed in the block."""
    ended, failed = one[ENDED], one[FAILED]
    if all_failed > 0.0 and 0.0 < ended < all_ended:
        e_value = min(odds_ratio(ended, failed, all_ended - ended, all_failed - failed), MOST_OF_A_BLOCK)
        one[EVIDENCE] = min((one[EVIDENCE] + 1.0) * e_value, _MOST)
    one[ENDED], one[FAILED] = 0.0, 0.0
