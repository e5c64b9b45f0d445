"""Laws of a refused plan: the state is as if it had not been made, and what was observed is kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from contracts.scoring.switch_law import RowMemory
from controller.decision import Decision
from controller.loop import Controller
from controller.options import ControllerSetup
from controller.state import ControllerState
from controller.supervise.switch_counter import Counts
from policies.registry import make_configuration
from policies.supervised import shipped_meta, supervised_setup
from tests.support.fleets.builders import make_fleet, make_layout
from tests.support.fleets.fakes import RecordingActuator, ScriptedTelemetry
from tests.support.fleets.worlds import Edit, drift, script

LAYOUT = make_layout(kernels=3, slices=2, per_kernel=2)
FLEET = make_fleet(LAYOUT)


def after_a_refusal(
    setup: ControllerSetup,
) -> tuple[Controller, Callable[[], tuple[Decision, bool]], ControllerState]:
    """A controller whose eleventh plan, a move, was refused; its next turn; and the state before."""
    controller, actuator = Controller(setup), RecordingActuator(refuses=(11,))
    source = ScriptedTelemetry(script(LAYOUT, 12, drift(LAYOUT, [0, 1], 0.0)))
    for _ in range(10):
        controller.turn(source, actuator)
    before = controller.state
    decision, acknowledged = controller.turn(source, actuator)
    assert decision.moved[0]
    assert not acknowledged
    return controller, lambda: controller.turn(source, actuator), before


def test_a_failed_apply_is_retried() -> None:
    """A plan that was not acknowledged leaves the old table remembered, so the next turn moves again."""
    edit: Edit = drift(LAYOUT, [0, 1], 0.0)
    controller = Controller(make_configuration("threshold", FLEET))
    source, actuator = ScriptedTelemetry(script(LAYOUT, 14, edit)), RecordingActuator(refuses=(11,))
    seen = [controller.turn(source, actuator) for _ in range(14)]
    moved = [index for index, (decision, _) in enumerate(seen) if decision.moved[0]]
    assert [acknowledged for _, acknowledged in seen].count(False) == 1
    assert moved == [10, 11]
    assert actuator.in_force is not None
    np.testing.assert_array_equal(actuator.in_force.table, seen[-1][0].table)


def test_a_refused_plan_does_not_change_the_table() -> None:
    """After a refusal the state holds the old table with all that belongs to it, and what was learned."""
    setup = make_configuration("threshold", FLEET)
    controller, turn, before = after_a_refusal(setup)
    of_plan = ("table", "version", "ejected", "pending", "row_moved_at_s", "row_move_began_at_s")
    for name in of_plan:
        np.testing.assert_array_equal(getattr(controller.state, name), getattr(before, name), err_msg=name)
    assert controller.state.condemned.any()
    assert int(controller.state.ticks[0]) == 11
    decision, acknowledged = turn()
    assert acknowledged
    assert int(decision.plan.version[0]) == int(controller.state.version[0]) == int(before.version[0]) + 1


def test_a_refused_plan_does_not_count_for_its_policy() -> None:
    """A plan that never ran is not counted, and the policy proposes as if it had not moved."""
    setup = supervised_setup(shipped_meta(), make_configuration("threshold", FLEET))
    controller, turn, before = after_a_refusal(setup)
    for name in (*RowMemory._fields, *Counts._fields):
        np.testing.assert_array_equal(
            controller.state.supervisor[name], before.supervisor[name], err_msg=name
        )
    assert controller.state.policy is before.policy
    assert controller.state.baseline is before.baseline
    _, acknowledged = turn()
    assert acknowledged
    np.testing.assert_array_equal(controller.state.supervisor["followed"], controller.state.table)


def test_a_refused_quarantine_keeps_its_version() -> None:
    """A refused plan that only took a replica out has another version than the one in force."""
    setup = make_configuration("fixed", FLEET)
    controller, actuator = Controller(setup), RecordingActuator(refuses=(11,))
    source = ScriptedTelemetry(script(LAYOUT, 12, drift(LAYOUT, [0], 0.0)))
    for _ in range(12):
        controller.turn(source, actuator)
    assert controller.state.quarantined.tolist() == [[True, False, False, False, False, False]]
    assert actuator.in_force is not None
    assert actuator.in_force.in_rotation.tolist() == [[False, True, True, True, True, True]]
    assert int(actuator.in_force.version[0]) == 1
