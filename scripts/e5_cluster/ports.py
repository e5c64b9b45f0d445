"""What E5 asks of a cluster, and how it waits for what others do there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from contracts.errors import SelvageError
from k8s.operator.objects import Cluster, ClusterError, Manifest


class ExperimentError(SelvageError):
    """The cluster does not take part as the experiment needs it; the text says what to do."""


_Answer = TypeVar("_Answer")
#: A server that does not answer is asked again for so long, s.
SILENT_S = 120.0


class ExperimentCluster(Cluster, Protocol):
    """One namespace, with what an experiment changes in it. Methods raise ``ClusterError``."""

    def policy(self, name: str) -> Manifest | None:
        """A RoutePolicy, None where there is none."""

    def put_policy(self, found: Manifest) -> Manifest | None:
        """Replace a RoutePolicy of the version that was read; what it is now, None where it has changed."""

    def drills(self) -> dict[str, Manifest]:
        """Every FaultDrill by name."""

    def drill(self, name: str) -> Manifest | None:
        """A FaultDrill, None where there is none."""

    def create_drill(self, drill: Manifest) -> Manifest:
        """Create a FaultDrill; what it is now."""

    def delete_drill(self, name: str) -> None:
        """Delete a FaultDrill, which is gone once it is undone; one that is gone is no error."""

    def lease_age_s(self, name: str) -> float | None:
        """Seconds since a Lease was renewed; None if it does not exist or has no holder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """How long others are waited for. still_ours: raises ExperimentError where the run may not go on."""

    still_ours: Callable[[], None]
    poll_s: float = 1.0

    def answer(self, ask: Callable[[], _Answer], what: str) -> _Answer:
        """What ``ask`` gives, which may be asked twice; ExperimentError where the server stays silent."""
        found: list[_Answer] = []

        def asked() -> str:
            found.append(ask())
            return ""

        self.until(asked, SILENT_S, what)
        return found[-1]

    def until(self, missing: Callable[[], str], within_s: float, what: str) -> None:
        """Ask again and again until nothing is ``missing``; ExperimentError where something still is.

        A server that does not answer is asked again.
        """
        deadline_at_s = time.monotonic() + within_s
        while True:
            self.still_ours()
            try:
                told = missing()
            except ClusterError as error:
                told = str(error)
            if not told:
                return
            if time.monotonic() > deadline_at_s:
                raise ExperimentError(f"{what}: not within {within_s:g} s: {told}")
            time.sleep(self.poll_s)
