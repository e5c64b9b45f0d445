"""A kernel that was down as a whole returns by its answers where it is needed, else by the clock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry, ProbeOutcome
from controller.fleet import Stage
from controller.judge.kernels.outage import DOUBLED_RETURNS
from policies.registry import make_configuration
from tests.support.fleets.builders import make_fleet, make_layout
from tests.support.fleets.worlds import Edit, Run, run, script

LAYOUT = make_layout(kernels=2, slices=2, per_kernel=3)
SETUP = replace(make_configuration("threshold", make_fleet(LAYOUT)), hang_timeouts=3)
ALL_REPLICAS, HOME = np.arange(6), np.arange(3)
READMIT_S = SETUP.options.readmit_after_s


def hang(replicas: NDArray[np.int64], *spans: tuple[float, float], ends: ProbeOutcome | None = None) -> Edit:
    """These ``replicas`` answer nothing in ``spans``; afterwards their probes end as ``ends`` (answered).

    From the first span on no request is sent to them.
    """

    def edit(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        hangs = any(since <= now_s < until for since, until in spans)
        after = now_s >= spans[0][1] and ends is not None
        probes, mine = seen.probes, np.isin(seen.probes.replica, replicas)
        if hangs or after:
            outcome = ProbeOutcome.TIMED_OUT if hangs or ends is None else ends
            probes.outcome[mine], probes.valid[mine] = int(outcome), False
            probes.sampled_at_ms[mine] = (now_s - 0.5) * 1000.0
        if now_s < spans[0][0]:
            return seen
        answered, running = seen.answered.copy(), seen.running.copy()
        answered[:, replicas], running[:, replicas] = 0, 3.0 if hangs else 0.0
        return replace(seen, answered=answered, running=running, probes=probes)

    return edit


def back_at_s(result: Run, after_s: float) -> float:
    """First second from ``after_s`` on in which kernel 0 serves traffic."""
    serves = np.asarray(result.tables()[:, :, 0].any(axis=1))
    return float(np.argmax(serves & (np.arange(1, serves.size + 1) >= after_s)) + 1)


def test_after_an_outage_of_all_kernels_answered_probes_are_enough() -> None:
    """Everything hangs for a minute; slices are home a few seconds after answers return."""
    result = run(SETUP, script(LAYOUT, 100, hang(ALL_REPLICAS, (5.0, 60.0))))
    assert 60.0 <= back_at_s(result, 59.0) <= 64.0


def test_where_another_kernel_carries_everything_the_clock_decides() -> None:
    """Only home hung and its slices are served elsewhere, so the return can wait."""
    result = run(SETUP, script(LAYOUT, 130, hang(HOME, (5.0, 30.0))))
    assert result.decisions[39].judgement.down[0].tolist() == [True, False]
    assert back_at_s(result, 30.0) >= 30.0 + 0.75 * READMIT_S


def test_where_only_a_canary_is_left_the_return_does_not_wait() -> None:
    """Only home hung, and the only other kernel is a canary, which is meant for small shares."""
    fleet = make_fleet(LAYOUT, stage=np.array([int(Stage.ACTIVE), int(Stage.CANARY)]))
    setup = replace(make_configuration("threshold", fleet), hang_timeouts=3)
    result = run(setup, script(LAYOUT, 100, hang(HOME, (5.0, 60.0))))
    assert (result.tables()[50, :, 1] > setup.options.limits.canary_most_ratio).all()
    assert 60.0 <= back_at_s(result, 59.0) <= 64.0


@pytest.mark.parametrize(
    "ends", [ProbeOutcome.FAILED, ProbeOutcome.REFUSED, ProbeOutcome.TIMED_OUT, ProbeOutcome.UNREADABLE]
)
def test_a_kernel_without_answered_probes_stays_down(ends: ProbeOutcome) -> None:
    """It holds no request and so does not hang, but no probe is answered."""
    result = run(SETUP, script(LAYOUT, 85, hang(ALL_REPLICAS, (5.0, 60.0), ends=ends)))
    assert back_at_s(result, 60.0) == 1.0  # never


def test_a_kernel_that_goes_down_repeatedly_has_to_answer_more_each_time() -> None:
    """Hangs of 20 s, half a minute apart: the answers required double, up to the declared limit."""
    spans = [(5.0 + 35.0 * n, 25.0 + 35.0 * n) for n in range(7)]
    state, waits = None, []
    for seen in script(LAYOUT, 245, hang(ALL_REPLICAS, *spans)):
        result = run(SETUP, iter([seen]), state)
        state = result.state
        waits.append(int(state.early_returns[0, 0]))
    found = np.array(waits)
    assert found[23] == 0
    assert found[34] == 1
    assert (np.diff(found) >= 0).all()
    assert found[-1] >= DOUBLED_RETURNS


def test_a_kernel_that_was_up_for_long_is_trusted_again() -> None:
    """Failed early returns are forgotten when the next outage comes much later."""
    spans = [(5.0, 25.0), (40.0, 60.0), (60.0 + 2.0 * READMIT_S, 80.0 + 2.0 * READMIT_S)]
    result = run(SETUP, script(LAYOUT, int(spans[-1][1]) + 10, hang(ALL_REPLICAS, *spans)))
    assert result.state.early_returns[0, 0] == 1
