"""Calibration: the terms behind a recording are recovered, and predict other loads."""

from __future__ import annotations

import pytest

from contracts.documents.serving_path import ServingPath
from contracts.errors import MeasurementError
from scripts.parity.calibrating import calibrated
from scripts.parity.comparing import JUDGED, LEAST_ALLOWED, compared
from tests.support.fleets.parity_recordings import LIMITS, SERVED, STEP, recorded, recording


def test_known_terms_come_back() -> None:
    """From a noisy recording the terms are recovered to a fraction of the reported resolution."""
    found = calibrated([recorded(6.0, 8)], STEP, LIMITS)
    assert found.request_overhead_ms == pytest.approx(SERVED.request_overhead_ms, abs=2.0)
    # Step and token share the cost of a full replica: their sum at its usual fill is known well.
    at_five = found.step_overhead_ms + 5.0 * found.token_overhead_ms
    assert at_five == pytest.approx(SERVED.step_overhead_ms + 5.0 * SERVED.token_overhead_ms, abs=0.3)
    assert found.half_widths is not None
    assert found.half_widths.token_overhead_ms > 0.0


def test_a_server_without_overhead_needs_none() -> None:
    """If steps alone explain the times, the terms are next to nothing."""
    found = calibrated([recorded(6.0, 8, serving=ServingPath(), noise=0.01)], STEP, LIMITS)
    assert found.request_overhead_ms < 2.0
    assert found.step_overhead_ms + 5.0 * found.token_overhead_ms < 0.3


def test_calibrated_at_one_load_it_holds_at_others() -> None:
    """Every judged quantile at two other loads is in bounds with the terms, and most are out without."""
    whole = recording()
    terms = calibrated(whole.at(whole.calibrate_rps), whole.step_time, whole.limits)
    rows = compared(whole, terms)
    assert [one.within for one in rows if one.within is not None] == [True] * (2 * 3 * len(JUDGED))
    bare = compared(whole, ServingPath())
    assert sum(one.within is False for one in bare) >= 10
    assert all(one.allowed >= LEAST_ALLOWED for one in rows)
    assert not any(one.within is not None for one in rows if one.calibrated_here or one.quantile == 99)


def test_too_few_answers_are_refused() -> None:
    """A run of a few requests is too little for three terms."""
    with pytest.raises(MeasurementError, match="run longer"):
        calibrated([recorded(1.0, 1, seconds=10.0)], STEP, LIMITS)
