"""Specs and arrivals that the engine refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simulator.engine.api import FleetEngine
from tests.support.fleets.engine_cases import make_arrivals, make_spec


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"step_model": np.zeros((3, 4))}, "step_model"),
        ({"max_batch": 0}, "max_batch"),
        ({"token_budget": 8}, "token_budget"),
        ({"block_tokens": 12}, "block_tokens"),
        ({"kv_blocks": np.full(3, 4)}, "kv_blocks"),
        ({"timeout_s": np.array([1.0, -1.0])}, "timeout_s"),
        ({"quality": np.full((3, 1, 1), np.nan)}, "quality"),
        ({"replica_kernel": np.array([0, 3])}, "replica_kernel"),
        ({"max_attempts": 9}, "max_attempts"),
        ({"request_delay_s": (0.1,)}, "request_delay_s"),
        ({"request_delay_s": (0.1, -0.1, 0.0)}, "request_delay_s"),
    ],
)
def test_an_impossible_spec_is_refused(changes: dict[str, Any], named: str) -> None:
    """The error names the field, what was expected and what was found."""
    with pytest.raises(ValueError, match=rf"{named}.*expected"):
        FleetEngine(make_spec(**changes), 1)


def test_impossible_arrivals_are_refused() -> None:
    """Decreasing times, unknown slices and requests that never fit are refused before they have an effect."""
    spec = make_spec()
    good = make_arrivals(spec, 5, 10.0)
    engine = FleetEngine(spec, 1)
    for changes in (
        {"arrived_at_s": good.arrived_at_s[::-1]},
        {"slice": np.full(5, 2)},
        {"prompt_tokens": np.full(5, 10**6)},
        {"uniforms": np.ones((5, 4))},
    ):
        with pytest.raises(ValueError, match="expected"):
            engine.feed(0, replace(good, **changes))
    engine.feed(0, good)
    with pytest.raises(ValueError, match="arrived_at_s"):
        engine.feed(0, good)
