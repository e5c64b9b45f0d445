"""Time until a healed build serves again, on measured profiles."""

from __future__ import annotations

import math

import pytest

from scripts.studies.worlds.returning import WAYS, Comparing, returns_s


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_what_was_seen_in_health_serves_where_nothing_was_certified(noise: float) -> None:
    """Four probes a second, with exact or nearly exact repeats: back within half a minute of the end."""
    (found,) = returns_s(Comparing("bounds", certified=False, repeat_noise=noise), 1.0, 1)
    assert found <= 30.0


def test_without_comparison_the_return_takes_longer() -> None:
    """The test of a mean over unlike prompts does not finish within the remaining eighteen minutes."""
    assert returns_s(WAYS[-1], 1.0, 1) == [math.inf]
