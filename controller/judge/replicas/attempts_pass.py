"""Compiled loops over attempts of a tick, and the likelihood ratio of higher failure odds over chance."""

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
#: Odds ratio of a failure, one side over the other, of the alternative; less is not worth a move.
ODDS = 4.0
#: Upper bound of a likelihood ratio.
MOST_RATIO = 2e7
#: Evidence from which a replica fails more than its kernel. Chance alone reaches it once in this many blocks
#: with failures. It is read only of replicas in alarm, so it decides only which replica is at fault.
FAILS_MORE = 1e3
#: Upper bound of the e-value of one block, because failures come in bursts: two blocks prove nothing.
MOST_OF_A_BLOCK = 31.0
#: Time constant, in windows, with which evidence decays.
MEMORY_WINDOWS = 5.0
#: Least attempts of a kernel in a block; a single attempt cannot be compared.
LEAST_ATTEMPTS = 20.0
#: Columns of a replica's memory: evidence, then ended and failed attempts of the open block.
EVIDENCE, ENDED, FAILED = range(3)
COLUMNS = 3
#: Upper bound of the evidence, so that it falls as soon as failure rates are equal again.
_MOST = 20.0 * FAILS_MORE
#: Bound beyond which the hypergeometric weights, relative to the first, are rescaled.
_LARGE = 1e100


class Tried(NamedTuple):
    """Requests and probes of a tick, by replica."""

    answered: NDArray[np.int64]  # [B, R], answered requests
    failed: NDArray[np.int64]  # [B, R], failed requests
    replica: NDArray[np.int64]  # [B, P], of each probe
    outcome: NDArray[np.int8]  # [B, P], a ``ProbeOutcome``


@compiled
def count_attempts(ended, failed, tried, serving, shares, owner):
    """Count attempts of the ``serving`` replicas [B, R] into ``ended`` and ``failed`` [B, K].

    Both are zero before and hold whole numbers. shares: float64 [B, K], share of the failed requests that
    counts. A probe that failed or was refused counts as a failed attempt; one that timed out may only be
    late and does not count.
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
                has_failed = outcome in (PROBE_FAILED, PROBE_REFUSED)
                ended[b, owner[r]] += has_failed or outcome == _ANSWERED
                failed[b, owner[r]] += has_failed


@compiled
def odds_ratio(ended, failed, other_ended, other_failed):
    """Likelihood ratio of ``ODDS`` times the failure odds on the first side over one common failure rate.

    It is conditional on the total of failures: ``ODDS ** failed`` over its mean under the hypergeometric
    law. All arguments are whole numbers.
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
    """Add a tick to ``memory`` [B, R, COLUMNS], in place; ended, failed: float64 [B, R], whole numbers."""
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
def _end_block(memory, all_ended, all_failed):
    """Close the block of one replica's memory [COLUMNS]; all_ended, all_failed: those of its kernel."""
    ended, failed = memory[ENDED], memory[FAILED]
    if all_failed > 0.0 and 0.0 < ended < all_ended:
        e_value = min(odds_ratio(ended, failed, all_ended - ended, all_failed - failed), MOST_OF_A_BLOCK)
        memory[EVIDENCE] = min((memory[EVIDENCE] + 1.0) * e_value, _MOST)
    memory[ENDED], memory[FAILED] = 0.0, 0.0
