"""``bench learned``: capacity in worlds about which the controller has wrong facts."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.bench import learned


def test_a_few_worlds_are_estimated_and_limits_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels with traffic are known well after two minutes, idle ones are covered."""
    monkeypatch.setattr(learned, "WORLDS", 4)
    figures: dict[str, Any] = learned.run()
    assert figures["busy_kernels"] >= 10
    assert figures["busy_error_median"] <= 0.1
    assert figures["busy_covered_ratio"] >= 0.9
    assert figures["idle_covered_ratio"] >= 0.75
