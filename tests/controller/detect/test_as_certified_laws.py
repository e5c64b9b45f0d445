"""Of what something is shed, an illness is over as soon as its probes say so: the laws of that test."""

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
#: All probes: what is never enough leaves the test of short slices alone.
NEVER = 1e-12


class Watched:
    """Fleets of one kernel whose replicas are probed in turn, slices in turn, one probe after the other."""

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
    """Matches in a row after which every slice is let in, or any."""
    for count in range(1, most + 1):
        if let_in(watched.ask(False)):
            return count
    return most


def unhealthy(probes: int, *, short: bool = True, most_ratio: float = NEVER) -> Watched:
    """A fleet all of whose last ``probes`` differed."""
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
def test_what_lasts_is_hardly_ever_let_in(shares: Sequence[float]) -> None:
    """At most a twentieth of the faults that last, whatever share of a slice's probes shows them, is ever let
    in where they show: 500 fleets, 600 probes each, three standard errors.
    """
    watched, rng = Watched(500), stream(7, "lasting")
    shows = np.asarray(shares) > 0.0
    ever = np.zeros(500, dtype=np.bool_)
    for _ in range(600):
        differs = rng.random(500) < shares[watched.turn()[1]]
        ever |= (watched.ask(differs) & shows).any(axis=1)
    assert ever.mean() <= ALPHA + 3.0 * math.sqrt(ALPHA * (1.0 - ALPHA) / 500)


@pytest.mark.parametrize(("probes", "most"), [(8, 16), (16, 13), (50, 10), (200, 10)])
def test_what_showed_in_every_probe_is_over_soon(probes: int, most: int) -> None:
    """The more often it was seen the sooner, but not before every slice and every replica has matched."""
    assert SLICES <= asked_until(unhealthy(probes), np.all) <= most
    assert asked_until(unhealthy(probes, short=False, most_ratio=0.1), np.all) >= 29


def test_nobody_is_let_in_by_others() -> None:
    """A replica whose last probe differed keeps its kernel out."""
    watched = unhealthy(50)
    for _ in range(60):
        replica, _ = watched.turn()
        assert not watched.ask(replica == 0).any()


def test_relapses_make_it_longer_by_their_logarithm() -> None:
    """Who is unhealthy again soon is let in after more matches, a few; after hundreds it is as at first."""
    watched = Watched(1)
    needed = [after_illness(watched) for _ in range(40)]
    assert needed[0] < needed[-1] <= needed[0] + 6
    for _ in range(300):
        watched.ask(False)
    assert after_illness(watched) == needed[0]


def after_illness(watched: Watched) -> int:
    """Matches after which the first slice is let in, after twenty probes that differ."""
    for _ in range(20):
        watched.ask(True)
    return asked_until(watched, np.any)
