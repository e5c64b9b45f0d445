"""Laws of who falls ill again and again, through whole runs of the controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry
from controller.judge.quarantine import QuarantineReason
from controller.judge.relapse import TRUST
from controller.options import ControllerOptions
from policies.registry import make_configuration
from tests.support.builders import make_fleet, make_layout
from tests.support.worlds import Edit, Run, drift, run, script

LAYOUT = make_layout(kernels=2, slices=2, per_kernel=3)
QUICK = ControllerOptions(readmit_after_s=20.0, readmit_every_s=5.0, hung_after_s=5.0)
SETUP = make_configuration("sequential", make_fleet(LAYOUT), QUICK)
FIRST_S = 30.0


Fault = Callable[[float, float, int], list[Edit]]


def drifts(period_s: float, ill_s: float, times: int) -> list[Edit]:
    """Replica 1 answers wrongly for ``ill_s`` of every period, so many times."""
    begins = FIRST_S + period_s * np.arange(times)
    return [drift(LAYOUT, [1], float(begin), float(begin) + ill_s) for begin in begins]


def hangs(period_s: float, ill_s: float, times: int) -> list[Edit]:
    """Replica 1 answers nobody for ``ill_s`` of every period, no probe either."""

    def hang(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        since_s = now_s - FIRST_S
        if not 0.0 < since_s <= period_s * times or since_s % period_s > ill_s:
            return seen
        answered, valid = seen.answered.copy(), seen.probes.valid & (seen.probes.replica != 1)
        answered[:, 1] = 0
        return replace(seen, answered=answered, probes=replace(seen.probes, valid=valid))

    return [hang]


def stays(result: Run) -> NDArray[np.int64]:
    """int64 [N, 2]: first and last tick, from 1 on, of every stay of replica 1 in quarantine."""
    out = np.concatenate([[False], result.quarantined()[:, 1], [False]]).astype(int)
    edges = np.flatnonzero(np.diff(out))
    return np.stack([edges[::2] + 1, edges[1::2]], axis=1)


@pytest.mark.parametrize("fault", [drifts, hangs])
@pytest.mark.parametrize(("period_s", "ill_s"), [(90.0, 15.0), (100.0, 30.0), (140.0, 20.0), (160.0, 40.0)])
def test_a_fault_that_comes_and_goes_strikes_twice_at_most(
    fault: Fault, period_s: float, ill_s: float
) -> None:
    """Out after the first and the second time at the latest, and then until the fault has ended for good."""
    result = run(SETUP, script(LAYOUT, 800, *fault(period_s, ill_s, 5)))
    found = stays(result)
    assert len(found) <= 2
    assert found[-1, 0] < FIRST_S + 2.0 * period_s
    assert found[-1, 1] > FIRST_S + 4.0 * period_s + ill_s


def test_who_was_well_for_long_comes_back_as_usual() -> None:
    """The first illness, and one after ten minutes, cost the usual stay and no more."""
    result = run(SETUP, script(LAYOUT, 850, *hangs(700.0, 20.0, 2)))
    first, second = stays(result)
    assert QuarantineReason.RELAPSED not in {int(one.quarantine_reason[0, 1]) for one in result.decisions}
    assert first[1] - first[0] < 30
    assert second[1] - second[0] < 50  # the usual stay grows with the number of quarantines


@settings(max_examples=8, deadline=None)
@given(period_s=st.integers(80, 160), ill_s=st.integers(15, 30))
def test_it_stays_out_for_longer_than_it_was_well(period_s: int, ill_s: int) -> None:
    """After a relapse it is out for ``TRUST`` times its time of health before, by that reason in the end."""
    result = run(SETUP, script(LAYOUT, 480, *hangs(float(period_s), float(ill_s), 2)))
    _, second = stays(result)
    well_again_s, was_well_s = FIRST_S + period_s + ill_s, period_s - ill_s
    assert second[1] - well_again_s == pytest.approx(TRUST * was_well_s, abs=25.0)
    assert result.decisions[second[1] - 1].quarantine_reason[0, 1] == QuarantineReason.RELAPSED
    assert not result.quarantined()[-1].any()


@pytest.mark.parametrize("others_carry", [True, False])
def test_the_fleet_has_it_back_where_it_is_short(others_carry: bool) -> None:
    """Who is well again and only not trusted yet serves where the others cannot carry the load."""
    # ``controller.judge.sparing``: reason ``relapsed`` is of those who go only if they can be spared.
    carried = 1e9 if others_carry else 1e-9
    fleet = make_fleet(LAYOUT)
    setup = make_configuration(
        "sequential", replace(fleet, capacity_rps=np.full_like(fleet.capacity_rps, carried)), QUICK
    )
    result = run(setup, script(LAYOUT, 330, *hangs(120.0, 20.0, 2)))
    out = result.quarantined()[:, 1]
    trusted_at = int(FIRST_S + 120.0 + 20.0 + TRUST * 60.0)
    assert bool(out[trusted_at - 5]) is others_carry
