"""The split of the false-switch budget as E5 reports it."""

from __future__ import annotations

import numpy as np
import pytest

from controller.detect.streams.protocol import guaranteed_threshold
from controller.detect.window import WindowDetector
from policies.registry import make_configuration
from scripts.e5.report.budget_table import HEADS, budget_table
from scripts.e5.scores.budget import budgets
from tests.support.fleets.builders import make_fleet


def test_the_split_adds_up_to_the_budget_of_the_configuration() -> None:
    """Alarms of all streams that can move one slice sum to the configuration's own budget, per slice and in
    all.
    """
    fleet = make_fleet()
    found = budgets([("s", make_configuration("sequential:budget=7", fleet).detector)])["s"]
    assert found["per_slice_month"] == 7.0
    assert found["alarms_per_slice_month"] == pytest.approx(7.0)
    every = sum(x["streams"] * x["alarms_per_month"] for x in found["lines"] if x["unit"] == "replica")
    for name in fleet.contract.slices:
        own = [x for x in found["lines"] if x["slice"] == name and x["unit"] == "kernel"]
        assert every + sum(x["streams"] * x["alarms_per_month"] for x in own) <= 7.0 + 1e-9


def test_thresholds_are_those_the_detector_runs_with() -> None:
    """A line's threshold is the plan's; a probe stream's is the guaranteed one of its ARL0 or above."""
    detector = make_configuration("sequential", make_fleet()).detector
    found = budgets([("s", detector)])["s"]
    for line in found["lines"]:
        if line["guaranteed"] and line["unit"] == "kernel":
            assert line["threshold"] == pytest.approx(guaranteed_threshold(line["arl0"]))
        if line["guaranteed"]:
            assert line["threshold"] >= guaranteed_threshold(line["arl0"]) - 1e-9
        plan = detector.plan  # type: ignore[attr-defined]
        alone = plan.thresholds.kernel if line["unit"] == "kernel" else None
        own = plan.thresholds.beside_all(plan.owner)[0] if alone is None else alone
        assert np.isclose(own, line["threshold"]).any()


def test_only_detectors_with_a_budget_have_a_split() -> None:
    """Windows declare no budget, so there is nothing to report."""
    assert budgets([("w", WindowDetector())]) == {}


def test_the_table_names_every_line_once() -> None:
    """Lines that differ in the slice alone share a row, and no slice is lost."""
    split = budgets([("s", make_configuration("sequential", make_fleet()).detector)])["s"]
    table = budget_table(split)
    assert all(len(row) == len(HEADS) for row in table.rows)
    assert sum(len(row[2].text.split(", ")) for row in table.rows) == len(split["lines"])
    assert np.all([row[8].text in ("yes", "no") for row in table.rows])
