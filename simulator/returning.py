"""Re-admission of simulated replicas: the state machine of real servers, with simulated verification probes.

A verification probe of a simulated replica agrees if no fault is in force on it. A traffic share of a replica
is realised as a share of its seconds in rotation, because the engine has no weights within a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import FleetLayout
from contracts.telemetry import FleetTelemetry, ReplicaState
from contracts.units import MS_PER_S
from controller.healing.machine import begin, held_back, line, order, share, step
from controller.healing.records import Flush, HealingOrder, HealingSight, HealingState, HealingTerms
from controller.ports import RoutingPlan
from simulator.drive import Driver

#: Verification probes that a simulated replica answers in a tick.
PROBES_PER_TICK = 4


def sight_of(state: HealingState, terms: HealingTerms, now_s: float, why_not: str) -> HealingSight:
    """The observation of a replica for the tick to ``now_s``; the replica is healthy if ``why_not`` is ""."""
    wanted, healthy = order(state, terms), not why_not
    return HealingSight(
        now_s=now_s,
        restarted=healthy if wanted is HealingOrder.RESTART else None,
        flush=(Flush.FLUSHED if healthy else Flush.FAILED) if wanted is HealingOrder.FLUSH else None,
        agreed=PROBES_PER_TICK if wanted is HealingOrder.PROBE and healthy else 0,
        failed=int(wanted is HealingOrder.PROBE and not healthy),
        told=why_not,
    )


@dataclass(slots=True)
class SimulatedReturn:
    """The re-admission of one replica. lines: (instant in s, change of phase or step)."""

    name: str
    terms: HealingTerms
    state: HealingState
    lines: list[tuple[float, str]] = field(default_factory=list)

    @classmethod
    def at(cls, name: str, terms: HealingTerms, now_s: float) -> SimulatedReturn:
        """The re-admission of replica ``name`` that begins at ``now_s``."""
        begun = cls(name=name, terms=terms, state=begin(now_s, terms))
        begun.lines.append((now_s, begun.line))
        return begun

    @property
    def line(self) -> str:
        """Its present state, as a line for people."""
        return f"{self.name}: {line(self.state, self.terms)}"

    @property
    def share(self) -> float:
        """Share of the traffic of a full replica, 0..1."""
        return share(self.state, self.terms)

    def turn(self, now_s: float, why_not: str) -> None:
        """One tick."""
        before = self.state
        self.state = step(before, sight_of(before, self.terms, now_s, why_not), self.terms)
        if (before.phase, before.step) != (self.state.phase, self.state.step):
            self.lines.append((now_s, self.line))


class ReturningDriver:
    """``simulator.drive.Driver`` of one fleet; replicas that return to rotation get their traffic in steps.

    driver: makes the decisions. why_not: (replica, s) -> why a verification probe would disagree; "" if it
    agrees.
    """

    def __init__(
        self, driver: Driver, layout: FleetLayout, terms: HealingTerms, why_not: Callable[[int, float], str]
    ) -> None:
        self._driver, self._layout, self._terms, self._why_not = driver, layout, terms, why_not
        self._was = np.ones(len(layout.replicas), dtype=np.bool_)
        self._returns: dict[int, SimulatedReturn] = {}
        self._tick = 0

    @property
    def policy_id(self) -> str:
        """The wrapped driver's policy."""
        return self._driver.policy_id

    @property
    def capacity_move(self) -> NDArray[np.bool_]:
        """Bool [B]: the wrapped driver's."""
        return self._driver.capacity_move

    def begin(self, batch: int) -> RoutingPlan:
        """Reset; ValueError for more than one fleet."""
        if batch != 1:
            raise ValueError(f"expected one fleet, got {batch}")
        self._was[:], self._returns, self._tick = True, {}, 0
        return self._driver.begin(batch)

    def step(self, telemetry: FleetTelemetry) -> RoutingPlan:
        """The wrapped driver's plan, without the traffic that returning replicas must not get yet."""
        plan, now_s = self._driver.step(telemetry), float(telemetry.now_ms[0]) / MS_PER_S
        rotation, ready = plan.in_rotation[0], telemetry.replica_state[0] == int(ReplicaState.READY)
        self._tick += 1
        for r in np.flatnonzero(rotation & ~self._was).tolist():
            self._returns[r] = SimulatedReturn.at(self._layout.replicas[r], self._terms, now_s)
        self._returns = {r: one for r, one in self._returns.items() if rotation[r] and one.share < 1.0}
        for r, one in self._returns.items():
            one.turn(now_s, self._why_not(r, now_s) if ready[r] else "it does not serve")
        self._was = rotation.copy()
        return self._held(plan, ready) if self._returns else plan

    def _held(self, plan: RoutingPlan, ready: NDArray[np.bool_]) -> RoutingPlan:
        """Full peers take the traffic that a replica must not get; the last replica of a kernel stays in
        rotation.
        """
        shares = np.ones(len(self._layout.replicas))
        for r, one in self._returns.items():
            shares[r] = one.share
        owner, rotation = self._layout.replica_kernel, plan.in_rotation[0]
        table = held_back(plan.table[0], rotation & ready, shares, owner)
        turn = np.floor(self._tick * shares) > np.floor((self._tick - 1) * shares)
        whole = np.bincount(owner[rotation & ready & (shares >= 1.0)], minlength=table.shape[1] - 1) > 0
        held = rotation & (shares < 1.0) & ~turn & whole[owner]
        return replace(plan, table=table[None], in_rotation=(rotation & ~held)[None])
