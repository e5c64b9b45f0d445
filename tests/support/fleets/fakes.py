"""Small fakes of the controller's ports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from contracts.telemetry import FleetTelemetry
from controller.ports import RoutingPlan


class ScriptedTelemetry:
    """``TelemetrySource`` that replays the given entries, one per read."""

    def __init__(self, script: Iterable[FleetTelemetry]) -> None:
        self._script: Iterator[FleetTelemetry] = iter(script)

    def read(self) -> FleetTelemetry:
        """The next entry."""
        return next(self._script)


class RecordingActuator:
    """``RouteActuator`` that keeps every plan; the calls numbered in ``refuses`` are not acknowledged."""

    def __init__(self, refuses: Iterable[int] = ()) -> None:
        self.in_force: RoutingPlan | None = None
        self.calls = 0
        self._refuses = frozenset(refuses)

    def apply(self, plan: RoutingPlan) -> bool:
        """Put ``plan`` in force unless this call is set to be refused."""
        self.calls += 1
        if self.calls in self._refuses:
            return False
        self.in_force = plan
        return True


class ManualClock:
    """``Clock`` that moves on request."""

    def __init__(self, now_ms: float = 0.0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> float:
        """Current instant."""
        return self._now_ms

    def advance(self, by_ms: float) -> None:
        """Move on by ``by_ms`` >= 0."""
        if by_ms < 0.0:
            raise ValueError(f"expected a step >= 0 ms, got {by_ms}")
        self._now_ms += by_ms
