"""Evidence that a replica fails more of its attempts than the rest of its kernel, at any rate of requests.

Where a server gets a request every few seconds, no window holds enough of them to tell chance from a host
that fails a third: evidence has to last until it is enough. It is that of kernels
(``judge.kernels.more_failures``), of one replica against all others of its kernel in rotation: the likelihood
ratio of a block at ``ODDS`` times the odds, given how many of the attempts of all failed; a product over
blocks from every start, summed. A block is a tick, or as many as it takes for ``LEAST_ATTEMPTS`` of the
kernel. Common failures, however they come and go, speak against nobody, and neither does who was in rotation
when: every block is compared with itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from controller.cells import some_in
from controller.judge.replicas.attempts_pass import Tried, count_attempts, odds_ratio
from controller.judge.replicas.departures import Case, Flags
from controller.perceive.excuse_pass import counting_shares

Floats = NDArray[np.float64]

#: Evidence from which a replica fails more than its kernel: by chance alone once in so many blocks with
#: failures. Asked of who is in alarm already, so that it decides only whose the failures are.
FAILS_MORE = 1e3
#: Attempts of a kernel in a block at least; of a single one there is nothing to compare.
LEAST_ATTEMPTS = 20.0
#: Columns of what is remembered of a replica: evidence, and attempts and failed ones of the open block.
EVIDENCE, ENDED, FAILED = range(3)
COLUMNS = 3
#: Evidence is kept up to here, so that it falls as soon as failures are the same.
_MOST = 20.0 * FAILS_MORE
#: Windows after which evidence that nothing renews is forgotten.
_MEMORY_WINDOWS = 5.0


def follow_replicas(case: Case) -> Floats:
    """float64 [B, R, COLUMNS], what is remembered of each replica after this tick."""
    before = case.estimate.state.fails_more
    ended, failed = _attempts(case)
    if not some_in(before) and not some_in(failed):
        return before
    memory_s = _MEMORY_WINDOWS * case.setup.contract.window_s
    after = before.copy()
    after[..., EVIDENCE] *= np.exp(-case.estimate.since_s[:, None] / memory_s)
    add_tick(after, ended, failed, case.owner, case.kernels)
    return after


def _attempts(case: Case) -> tuple[Floats, Floats]:
    """(ended, failed), float64 [B, R], in this tick: requests and probes of who is in rotation. Of an
    overloaded kernel what came too late did not fail (``perceive.excuse_pass``).
    """
    plain, seen, probes = np.ascontiguousarray, case.telemetry, case.telemetry.probes
    late, all_failed = plain(seen.gateway.timed_out), plain(seen.gateway.failed)
    shares = counting_shares(all_failed, late, case.estimate.overload)[:, case.owner]
    tried = Tried(plain(seen.answered), plain(seen.failed), plain(probes.replica), plain(probes.outcome))
    ended, failed = np.zeros((2, *shares.shape))
    count_attempts(ended, failed, tuple(tried), _serving(case), plain(shares), np.arange(len(case.owner)))
    return ended, failed


def _serving(case: Case) -> Flags:
    return np.asarray(case.ready & ~case.estimate.state.quarantined)


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
        e_value = odds_ratio(ended, failed, all_ended - ended, all_failed - failed)
        one[EVIDENCE] = min((one[EVIDENCE] + 1.0) * e_value, _MOST)
    one[ENDED], one[FAILED] = 0.0, 0.0
