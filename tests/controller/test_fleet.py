"""The facts of a fleet are checked at construction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controller.options import ControllerSetup
from policies.registry import make_configuration
from tests.support.fleets.builders import make_fleet, make_layout

FLEET = make_fleet(make_layout(kernels=3, slices=2, per_kernel=2))


def test_setup_refuses_inconsistent_facts() -> None:
    """Wrong capacities, homes and contracts of another layout are named at construction."""
    for change, message in (
        ({"capacity_rps": np.array([1.0, 0.0, 1.0])}, "capacity_rps"),
        ({"capacity_rps": np.ones(2)}, "capacity_rps"),
        ({"home": np.array([0, 3])}, "home"),
        ({"contract": make_fleet(make_layout(slices=3)).contract}, "contract slices"),
        ({"tick_s": 0.0}, "tick_s"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(FLEET, **change)
    assert isinstance(make_configuration("fixed", FLEET), ControllerSetup)
