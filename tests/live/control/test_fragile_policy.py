"""A policy that raises: it may be a plug-in's; a controller that ended because of it would stop all moves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from controller.ports import Observation, Policy, PolicyState, Proposal
from live.control.chain import read_chain
from live.control.journal import Beginning, DecisionLog
from live.control.loop import ControlPorts, LiveController
from live.control.replay import replay
from tests.live.control.test_loop import HOME, LAYOUT, SETUP, Watch
from tests.support.fleets.fakes import ManualClock, RecordingActuator, ScriptedTelemetry
from tests.support.fleets.worlds import drift, script


@dataclass
class Fragile:
    """A policy that raises in the calls ``fails``, counted from 0, and is ``inner`` in all others."""

    inner: Policy
    fails: range
    calls: int = 0

    @property
    def policy_id(self) -> str:
        """That of the inner one."""
        return self.inner.policy_id

    def initial(self, batch: int) -> PolicyState:
        """That of the inner one."""
        return self.inner.initial(batch)

    def propose(self, observation: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """Raise, or propose."""
        self.calls += 1
        if self.calls - 1 in self.fails:
            raise ValueError("no such slice")
        return self.inner.propose(observation, state)


def test_a_policy_that_raises_ends_nothing(tmp_path: Path) -> None:
    """The last table stands and the log says why; later decisions can be replayed."""
    actuator, watch = RecordingActuator(), Watch()
    setup = replace(SETUP, policy=Fragile(SETUP.policy, fails=range(20, 30)))
    clock = ManualClock()
    log = DecisionLog(tmp_path, Beginning(setup=setup, state=None, documents={}, code_version="a test"))
    ports = ControlPorts(
        source=ScriptedTelemetry(script(LAYOUT, 60, drift(LAYOUT, HOME, 5.0))),
        clock=clock,
        actuator=actuator,
        watchers=(log, watch),
    )
    one = LiveController(setup, ports)
    for _ in range(60):
        one.step()
        clock.advance(1000.0)
    log.close()
    failed = [turn for turn in watch.turns if turn.decision is None]
    assert [turn.error for turn in failed] == ["deciding: no such slice"] * 10
    assert all(turn.after is turn.before for turn in failed)
    assert actuator.in_force is not None
    np.testing.assert_array_equal(actuator.in_force.table, one.state.table)
    assert (one.state.table[0, :, 0] < 0.5).all()
    found = replay(read_chain(tmp_path / "decisions-000001.jsonl").rows, SETUP)
    assert (found.identical, found.ticks, found.notes) == (True, 50, 1)
