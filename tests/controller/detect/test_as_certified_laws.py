"""The early end of a fault where traffic is shed: as soon as its probes show it, at a declared risk."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from contracts.rng import stream
from controller.detect.as_certified_pass import (
    DIFFERS,
    MATCHES,
    RUN_COLUMNS,
    AwaitedReturns,
    ProbeComparisons,
    RunRules,
    find_again,
    follow_runs,
)

ALPHA = 0.05
SLICES, REPLICAS = 5, 4
OWNER = np.zeros(REPLICAS, dtype=np.int64)
#: A ratio at which no run is long enough, so that the test of short slices decides alone.
NEVER = 1e-12


class Watched:
    """Fleets of one kernel; replicas and slices are probed in turn, one probe at a time."""

    def __init__(self, fleets: int, *, short: bool = True, most_ratio: float = NEVER) -> None:
        self.runs = np.zeros((fleets, REPLICAS + 1, SLICES + 1, RUN_COLUMNS))
        self._rules = tuple(RunRules(OWNER, most_ratio, -math.log(ALPHA)))
        awaited = AwaitedReturns(
            np.full((fleets, SLICES), short), np.ones((fleets, REPLICAS), dtype=np.bool_)
        )
        self._awaited, self._at = tuple(awaited), 0

    def turn(self) -> tuple[int, int]:
        """Replica and slice of the next probe."""
        return self._at % REPLICAS, (self._at // REPLICAS + self._at % REPLICAS) % SLICES

    def ask(self, differs: NDArray[np.bool_] | bool) -> NDArray[np.bool_]:
        """bool [B, S]: the kernel is as certified again after one more probe; ``differs``: bool [B]."""
        replica, slice_ = self.turn()
        self._at += 1
        shape = len(self.runs), 1
        compared = ProbeComparisons(
            outcome=np.where(np.broadcast_to(differs, shape[0]), DIFFERS, MATCHES).astype(np.int8)[:, None],
            replica=np.full(shape, replica),
            slice=np.full(shape, slice_),
            pooled=np.ones(shape, dtype=np.bool_),
        )
        follow_runs(self.runs, tuple(compared), self._rules)
        again = np.empty((shape[0], REPLICAS + 1, SLICES), dtype=np.bool_)
        find_again(again, self.runs, self._awaited, self._rules)
        return again[:, REPLICAS]


def asked_until(watched: Watched, let_in: Callable[[NDArray[np.bool_]], np.bool_], most: int = 400) -> int:
    """Matches in a row until ``let_in`` (``np.all``: every slice, ``np.any``: any); at most ``most``."""
    for count in range(1, most + 1):
        if let_in(watched.ask(False)):
            return count
    return most


def unhealthy(probes: int, *, short: bool = True, most_ratio: float = NEVER) -> Watched:
    """One fleet whose last ``probes`` probes all differed."""
    watched = Watched(1, short=short, most_ratio=most_ratio)
    for _ in range(probes):
        watched.ask(True)
    return watched


@pytest.mark.parametrize(
    "shares",
    [
        *([share] * SLICES for share in (0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 0.99)),
        [1.0, 0.0, 0.0, 0.0, 0.0],
        [1.0, 1.0, 0.0, 0.0, 0.0],
        [1.0, 1.0, 1.0, 1.0, 0.3],
        [0.9, 0.9, 0.2, 0.2, 0.2],
    ],
    ids=str,
)
def test_a_lasting_fault_is_hardly_ever_cleared(shares: Sequence[float]) -> None:
    """At most a twentieth of lasting faults is ever cleared on a slice that shows them, at any share.

    500 fleets, 600 probes each, three standard errors.
    """
    watched, rng = Watched(500), stream(7, "lasting")
    shows = np.asarray(shares) > 0.0
    ever = np.zeros(500, dtype=np.bool_)
    for _ in range(600):
        differs = rng.random(500) < shares[watched.turn()[1]]
        ever |= (watched.ask(differs) & shows).any(axis=1)
    assert ever.mean() <= ALPHA + 3.0 * math.sqrt(ALPHA * (1.0 - ALPHA) / 500)


@pytest.mark.parametrize(("probes", "most"), [(8, 16), (16, 13), (50, 10), (200, 10)])
def test_a_fault_that_showed_in_every_probe_ends_soon(probes: int, most: int) -> None:
    """The more often it showed the sooner, but not before every slice and every replica has matched."""
    assert SLICES <= asked_until(unhealthy(probes), np.all) <= most
    assert asked_until(unhealthy(probes, short=False, most_ratio=0.1), np.all) >= 29


def test_no_replica_is_cleared_by_its_peers() -> None:
    """A replica whose last probe differed keeps its kernel out."""
    watched = unhealthy(50)
    for _ in range(60):
        replica, _ = watched.turn()
        assert not watched.ask(replica == 0).any()


def test_relapses_lengthen_recovery_by_their_logarithm() -> None:
    """After a relapse recovery takes a few more matches; after hundreds of matches it is as at first."""
    watched = Watched(1)
    needed = [after_fault(watched) for _ in range(40)]
    assert needed[0] < needed[-1] <= needed[0] + 6
    for _ in range(300):
        watched.ask(False)
    assert after_fault(watched) == needed[0]


def after_fault(watched: Watched) -> int:
    """Matches after which the first slice is let in, after twenty probes that differ."""
    for _ in range(20):
        watched.ask(True)
    return asked_until(watched, np.any)
