"""Returning simulated replicas are held back by the same machine as real ones."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.telemetry import FleetTelemetry
from controller.healing.records import HealingPhase, HealingTerms
from controller.ports import RoutingPlan
from simulator.returning import ReturningDriver, SimulatedReturn
from tests.support.fleets.builders import make_layout
from tests.support.fleets.worlds import script

LAYOUT = make_layout(kernels=2, slices=1, per_kernel=2)
TERMS = HealingTerms(verify_probes=8, readmit_over_s=20.0, steps=4, wait_s=5.0, most_wait_s=5.0, attempts=2)
BACK = 5


class Scripted:
    """``Driver`` that leaves replica 0 out until tick ``BACK``; all traffic on its kernel."""

    policy_id = "scripted"
    capacity_move = np.zeros(1, dtype=np.bool_)

    def __init__(self) -> None:
        self._ticks = 0

    def begin(self, batch: int) -> RoutingPlan:
        """Every replica serves."""
        self._ticks = 0
        return self._plan(np.ones((batch, 4), dtype=np.bool_))

    def step(self, telemetry: FleetTelemetry) -> RoutingPlan:
        """One tick."""
        self._ticks += 1
        return self._plan(np.array([[self._ticks >= BACK, True, True, True]]))

    def _plan(self, rotation: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> RoutingPlan:
        return RoutingPlan(
            table=np.array([[[1.0, 0.0, 0.0]]]), in_rotation=rotation, version=np.array([self._ticks])
        )


def rotations(unhealthy_until_s: float, ticks: int = 60) -> list[bool]:
    """Whether replica 0 is in rotation in each tick."""
    driver = ReturningDriver(
        Scripted(), LAYOUT, TERMS, lambda _, now_s: "still unhealthy" if now_s < unhealthy_until_s else ""
    )
    driver.begin(1)
    return [bool(driver.step(seen).in_rotation[0, 0]) for seen in script(LAYOUT, ticks)]


def test_a_healthy_replica_serves_a_growing_share_of_its_seconds() -> None:
    """None while it is probed, then in each five seconds about as many as its step allows, then all."""
    served = rotations(0.0)
    first = served.index(True)
    assert first > BACK
    parts = [sum(served[at : at + 5]) for at in range(first - 1, first + 19, 5)]
    assert parts == sorted(parts)
    assert 0 < parts[0] < 5
    assert all(served[first + 22 :])


def test_a_replica_that_is_still_unhealthy_gets_nothing() -> None:
    """While its probes disagree it serves in no second, although the plan has it in rotation."""
    assert not any(rotations(1000.0))


@pytest.mark.parametrize(
    ("unhealthy_for_s", "phase"), [(3.0, HealingPhase.HEALED), (99.0, HealingPhase.FAILED)]
)
def test_a_second_attempt_decides(unhealthy_for_s: float, phase: HealingPhase) -> None:
    """Unhealthy at first, it is healed in the second attempt; unhealthy throughout, it fails."""
    one = SimulatedReturn.at("r0", TERMS, 0.0)
    for now in range(1, 60):
        one.turn(float(now), "unhealthy" if now < unhealthy_for_s else "")
    assert one.state.phase is phase
    assert one.state.attempt == 2
