"""Metrics of usual step times: how many replicas are judged, and against which times."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from controller.initial import initial_state
from controller.options import ControllerSetup
from controller.perceive.usual_speed_pass import LEAST_SCRAPES, MEAN, SCRAPES
from controller.state import ControllerState, altered
from k8s.operator.route_loop import RouteLoop
from k8s.process.metrics import clock_metrics
from policies.registry import make_configuration
from tests.support.fleets.builders import make_layout
from tests.support.fleets.clocks import clocked_fleet

LAYOUT = make_layout(kernels=2, slices=1, per_kernel=3)


def told(setup: ControllerSetup, state: ControllerState) -> dict[str, dict[str, float]]:
    """Metric -> kernel -> value."""
    loop = SimpleNamespace(setup=setup, controller=SimpleNamespace(state=state))
    families = clock_metrics({"chat": cast(RouteLoop, loop)})
    return {
        family.name: {sample.labels["kernel"]: sample.value for sample in family.samples}
        for family in families
    }


@pytest.mark.parametrize("own_clocks", ["certified", "usual"])
def test_without_usual_step_times_no_replica_is_judged_by_them(own_clocks: Any) -> None:
    """At the start, and where certified step times are used, no replica is judged by its usual ones."""
    setup = replace(make_configuration("fixed", clocked_fleet(LAYOUT)), own_clocks=own_clocks)
    found = told(setup, initial_state(setup, 1))
    assert found["selvage_judged_clocks_replicas"] == {"k0": 0.0, "k1": 0.0}
    assert all(np.isnan(value) for value in found["selvage_usual_step_time_ratio"].values())


def test_the_median_judged_replica_gives_the_value_of_its_kernel() -> None:
    """Two of three replicas have usual step times: three and five times the certified ones."""
    setup = replace(make_configuration("fixed", clocked_fleet(LAYOUT)), own_clocks="usual")
    state = initial_state(setup, 1)
    clock = np.array(state.usual["clock"])
    clock[0, :2, SCRAPES], clock[0, :2, MEAN] = LEAST_SCRAPES, np.log([3.0, 5.0])
    found = told(setup, altered(state, usual={**state.usual, "clock": clock}))
    assert found["selvage_judged_clocks_replicas"] == {"k0": 2.0, "k1": 0.0}
    assert found["selvage_usual_step_time_ratio"]["k0"] == pytest.approx(4.0)
    assert np.isnan(found["selvage_usual_step_time_ratio"]["k1"])
