"""Expected duration of a certification on this machine, from the first seconds of its own episodes.

A simulated second of a quiet fleet, of one with users and of one whose policy never moves differ in cost,
and more fleets in lock-step cost less each. So every kind of part is tried once, for ``TRIAL_S`` simulated
seconds with its own policy and number of fleets; so are the single fleets on which decisions are timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from scripts.e5.run.jobs import compiled
from scripts.e5.run.trial import TRIAL_S, WORTH, fleet_second_s
from scripts.train.certify_parts import CertificationPart, PartResult, driver_of
from scripts.train.decision_time import timed_s


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificationTime:
    """costs: kind of part -> seconds per fleet-second; without trials 1 each, so that shares alone are known.

    fleet_s: kind -> simulated seconds of all fleets; decisions_s: of timing decisions, simulated seconds.
    """

    costs: dict[tuple[str, str, int], float]
    fleet_s: dict[tuple[str, str, int], float]
    decisions_cost: float
    decisions_s: float
    jobs: int
    tried: bool

    @classmethod
    def measured(
        cls,
        parts: Sequence[CertificationPart],
        timed: CertificationPart,
        jobs: int,
        *,
        episodes: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> CertificationTime:
        """Measured costs of ``parts`` on ``jobs`` processes, and of timing decisions on single fleets of
        ``timed``, of which there are ``episodes``.

        Nothing is tried if that would take a large part of the whole.
        """
        kinds = {_kind(part): part for part in parts}
        fleet_s = {kind: sum(one.fleet_s for one in parts if _kind(one) == kind) for kind in kinds}
        decisions_s = timed_s(compiled(timed.entry), episodes)
        tried_s = TRIAL_S * (1 + sum(len(part.seeds) for part in kinds.values()))
        tried = sum(fleet_s.values()) + decisions_s >= WORTH * tried_s
        return cls(
            costs={kind: _cost(part, part.seeds, clock) if tried else 1.0 for kind, part in kinds.items()},
            fleet_s=fleet_s,
            decisions_cost=_cost(timed, timed.seeds[:1], clock) if tried else 1.0,
            decisions_s=decisions_s,
            jobs=jobs,
            tried=tried,
        )

    @property
    def expected_s(self) -> float:
        """Expected total seconds; 0 if nothing was tried."""
        return self._whole if self.tried else 0.0

    @property
    def _whole(self) -> float:
        parts = sum(self.costs[kind] * spent_s for kind, spent_s in self.fleet_s.items())
        return parts / self.jobs + self.decisions_cost * self.decisions_s

    def followed(
        self, results: Iterable[PartResult], progress: Callable[[float], None] | None
    ) -> Iterator[PartResult]:
        """``results``; ``progress`` is called after each with its share of the whole time."""
        done_s = 0.0
        for result in results:
            yield result
            done_s += self.costs[_kind(result.part)] * result.part.fleet_s / self.jobs
            if progress is not None:
                progress(done_s / self._whole)


def _kind(part: CertificationPart) -> tuple[str, str, int]:
    """Key of parts with equal cost: suite, policy and number of fleets."""
    return part.suite, part.spec, len(part.seeds)


def _cost(part: CertificationPart, seeds: Sequence[int], clock: Callable[[], float]) -> float:
    return fleet_second_s(part.entry, seeds, lambda world: driver_of(part, world), clock)
