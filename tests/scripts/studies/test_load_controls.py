"""Counts of false switches at loads, and refused options."""

from __future__ import annotations

import pytest

from contracts.errors import DocumentError
from contracts.units import SECONDS_PER_MONTH
from scripts.cli.bench import bench
from scripts.studies.load_controls import DAYS, LoadControls, load_controls


def test_a_hundred_slice_days_without_any_bound_the_rate() -> None:
    """None in 100 slice-days means at most 1.11 per slice-month, by the exact Poisson limit 3.689."""
    months = DAYS * 86400.0 / SECONDS_PER_MONTH
    found = LoadControls(false_switches=0, capacity_moves=7, slice_months=months).figures()
    assert found["per_slice_month"] == 0.0
    assert found["ci_high"] == pytest.approx(3.6889 / months, abs=1e-3)
    assert found["slice_days"] == DAYS


def test_a_load_that_no_scenario_has_is_refused() -> None:
    """The message names the choices."""
    with pytest.raises(DocumentError, match="60"):
        load_controls(("70",), ("hysteresis",), 1.0)


def test_a_benchmark_without_load_refuses_the_option() -> None:
    """An option of one benchmark is refused by the others."""
    with pytest.raises(DocumentError, match="--load"):
        bench(name="shield", load="60")
