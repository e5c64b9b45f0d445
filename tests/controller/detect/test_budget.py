"""The mapping of clauses to detectors and the split of the budget, on hand-made and shipped contracts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.telemetry import SampleRates
from contracts.units import SECONDS_PER_MONTH
from controller.detect.budget import (
    Budget,
    split_budget,
)
from controller.detect.clauses import Kind, from_traffic, plan_clauses
from controller.detect.streams.protocol import StreamDetector
from policies.synthetic_fleet import synthetic_fleet
from tests.support.fleets.detect_worlds import contract_arrays, fleet_layout


def test_each_clause_gets_its_detector() -> None:
    """Rates bet on exceedances, zero limits alarm at once, means bet on values, "at least" is mirrored."""
    plan = plan_clauses(contract_arrays())
    kinds = [Kind(int(kind)) for kind in plan.kind]
    assert kinds == [Kind.BETTING, Kind.BETTING, Kind.AT_ONCE, Kind.BETTING, Kind.BETTING, Kind.NONE]
    assert plan.null_mean[[0, 1, 3, 4]] == pytest.approx([2e-3, 0.05, 0.1, 0.01])
    assert plan.mirrored.tolist() == [False, False, False, True, False, False]
    assert plan.guaranteed.tolist() == [True, True, True, True, False, False]
    assert plan.detector(0).clip == 0.1
    with pytest.raises(ValueError, match="AT_ONCE"):
        plan.detector(2)


@given(
    budget=st.floats(0.1, 10.0),
    share=st.floats(0.0, 1.0),
    probes=st.floats(0.01, 10.0),
    replicas=st.integers(1, 9),
)
def test_the_split_keeps_the_budget(budget: float, share: float, probes: float, replicas: int) -> None:
    """All alarms that can move one slice sum to at most the budget, and ARL0 is a month over the share."""
    layout = fleet_layout(replicas)
    split = split_budget(
        contract_arrays(),
        layout,
        SampleRates(probes_per_s=probes, scrape_interval_s=5.0),
        Budget(per_slice_month=budget, kernel_share=share),
    )
    assert split.alarms_per_slice_month <= budget * (1.0 + 1e-9)
    assert split.at_once == ("flip-hard",)
    for line in split.lines:
        if line.alarms_per_month > 0.0:
            expected = max(line.samples_per_s * SECONDS_PER_MONTH / line.alarms_per_month, 2.0)
            expected = expected if expected < 1e18 else math.inf
            assert line.arl0 == pytest.approx(expected)
            assert line.threshold == pytest.approx(math.log(line.arl0))


def test_default_budgets_ask_for_long_runs() -> None:
    """Twelve replicas at one probe a second: ARL0 between 1e7 and 1e9 units, as the design expects."""
    split = split_budget(
        contract_arrays(), fleet_layout(12), SampleRates(probes_per_s=1.0, scrape_interval_s=5.0)
    )
    arl0 = np.concatenate([split.replica_arl0.ravel(), split.kernel_arl0.ravel()])
    finite = arl0[np.isfinite(arl0)]
    assert finite.min() >= 1e6
    assert finite.max() <= 1e9


def test_a_replicas_traffic_is_one_stream_with_the_shares_of_all_slices() -> None:
    """Servers report no slices: one stream per clause; a kernel has one per slice, as the gateway counts."""
    fleet = synthetic_fleet(2, 3, 6)
    rates = SampleRates(probes_per_s=1.0, scrape_interval_s=5.0, gateway_interval_s=1.0)
    split = split_budget(fleet.contract, fleet.layout, rates)
    traffic = from_traffic(fleet.contract)
    streams = np.isfinite(split.replica_arl0).sum(axis=1)
    assert (streams[:, traffic] == 1).all()
    assert (np.isfinite(split.kernel_arl0)[..., traffic].sum(axis=1) == 3).all()
    alarms = {(line.clause, line.unit): line.alarms_per_month for line in split.lines}
    rate = {(line.clause, line.unit): line.samples_per_s for line in split.lines}
    assert alarms["C4", "replica"] == pytest.approx(3.0 * alarms["C7", "replica"])
    assert alarms["C4", "kernel"] == pytest.approx(alarms["C7", "kernel"])
    assert rate["C4", "replica"] == rate["C4", "kernel"] == pytest.approx(0.2)
    assert rate["C6", "replica"] == rate["C6", "kernel"] == pytest.approx(1.0)
    assert rate["C7", "kernel"] == pytest.approx(0.6)


def test_bad_budgets_are_refused() -> None:
    """A budget of 0, or a share outside 0..1, is refused."""
    for wrong in ({"per_slice_month": 0.0}, {"kernel_share": 1.5}):
        with pytest.raises(ValueError, match="budget"):
            Budget(**wrong)


def test_plan_detectors_follow_the_protocol() -> None:
    """A detector of the plan is a stream detector like any other."""
    detector: StreamDetector = plan_clauses(contract_arrays()).detector(1)
    assert detector.initial(3).statistic.shape == (3,)
