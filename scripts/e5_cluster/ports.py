"""Interface of E5 to a cluster, and waiting for changes there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from contracts.errors import SelvageError
from k8s.operator.objects import Cluster, ClusterError, Manifest


class ExperimentError(SelvageError):
    """The cluster does not fulfil a requirement of the experiment; the text names the remedy."""


_Answer = TypeVar("_Answer")
#: Time for which a silent server is retried, s.
SILENT_S = 120.0


class ExperimentCluster(Cluster, Protocol):
    """One namespace, with the objects that an experiment changes. Methods raise ``ClusterError``."""

    def policy(self, name: str) -> Manifest | None:
        """A RoutePolicy; None if there is none."""

    def put_policy(self, found: Manifest) -> Manifest | None:
        """Replace a RoutePolicy of the version that was read; returns the new one, None if it has changed."""

    def drills(self) -> dict[str, Manifest]:
        """Every FaultDrill by name."""

    def drill(self, name: str) -> Manifest | None:
        """A FaultDrill; None if there is none."""

    def create_drill(self, drill: Manifest) -> Manifest:
        """Create a FaultDrill; returns it."""

    def delete_drill(self, name: str) -> None:
        """Delete a FaultDrill; it disappears once it is undone. A missing one is not an error."""

    def lease_age_s(self, name: str) -> float | None:
        """Seconds since a Lease was renewed; None if it does not exist or has no holder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Time limits for waiting. still_ours: raises ExperimentError if the run must stop."""

    still_ours: Callable[[], None]
    poll_s: float = 1.0

    def answer(self, ask: Callable[[], _Answer], what: str) -> _Answer:
        """The result of ``ask``, which must be repeatable; ExperimentError if the server stays silent."""
        found: list[_Answer] = []

        def asked() -> str:
            found.append(ask())
            return ""

        self.until(asked, SILENT_S, what)
        return found[-1]

    def until(self, missing: Callable[[], str], within_s: float, what: str) -> None:
        """Repeat until nothing is ``missing``; ExperimentError if something still is.

        A silent server is retried.
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
