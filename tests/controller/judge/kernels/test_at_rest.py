"""A kernel whose certified values break the contract gets no traffic before its probes keep it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controller.fleet import FleetSetup
from controller.initial import initial_state
from controller.judge.kernels.at_rest import broken_at_rest
from policies.registry import make_configuration
from tests.support.fleets.builders import make_fleet
from tests.support.fleets.certified_fleets import LAYOUT, certified
from tests.support.fleets.worlds import run, script, silence

HARD, SOFT = 0, 1
#: The limit of the test contract's hard clause is 0.02, that of the soft one 0.2.
FAR_BEYOND = 3.0


def fleet_with(kernel: int, column: int, value: float, slice_: int | None = None) -> FleetSetup:
    """``kernel`` was certified with ``value`` of a metric, on one slice or on all; the rest is healthy."""
    known = certified()
    values = known.values.copy()
    rows = np.ones(known.slice.shape, dtype=np.bool_) if slice_ is None else known.slice == slice_
    values[kernel, rows, :, column] = value
    return replace(make_fleet(LAYOUT), certified=replace(known, values=values))


@pytest.mark.parametrize("column", [HARD, SOFT])
def test_it_starts_condemned_on_the_slice_and_clause_that_it_breaks(column: int) -> None:
    """Nowhere else; the loss of an answer follows from the clause's weight."""
    found = broken_at_rest(make_configuration("threshold", fleet_with(1, column, FAR_BEYOND, slice_=1)))
    assert np.argwhere(found.condemned).tolist() == [[1, 1, column]]
    assert (found.answer_loss > 0.0).tolist() == [[False, False], [False, True]]
    assert column != HARD or found.answer_loss[1, 1] >= 1.0


def test_a_kernel_that_keeps_every_clause_starts_certified() -> None:
    """So does every kernel in a fleet without certified values."""
    for known in (certified(), None):
        setup = make_configuration("threshold", replace(make_fleet(LAYOUT), certified=known))
        assert not initial_state(setup, 2).condemned.any()


def test_the_home_of_a_slice_is_not_condemned() -> None:
    """A home was chosen in spite of its certificate."""
    setup = make_configuration("threshold", fleet_with(0, HARD, FAR_BEYOND))
    assert not broken_at_rest(setup).condemned.any()


def test_it_gets_no_traffic_until_its_probes_keep_the_clause() -> None:
    """With its certificate alone it is not certified; once probes keep the clause it is."""
    setup = make_configuration("hysteresis", fleet_with(1, HARD, FAR_BEYOND))
    quiet = run(setup, script(LAYOUT, 40, silence(0.0)))
    assert not quiet.decisions[-1].observation.certified[0, 1].any()
    assert quiet.decisions[-1].observation.hard_violated[0, 1].all()
    assert not quiet.tables()[:, :, 1].any()
    healthy = run(setup, script(LAYOUT, 120))
    assert healthy.decisions[-1].observation.certified[0, 1].all()
