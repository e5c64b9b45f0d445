"""Random worlds: every number gives a world that can be run, and always the same one."""

from __future__ import annotations

import numpy as np

from scripts.studies.worlds.drawn import SLICES, draw_spec
from scripts.studies.worlds.harm import differences, summary, world


def test_every_number_is_a_world() -> None:
    """Whatever is drawn is a valid scenario with a home for every slice, and the same each time."""
    for number in range(25):
        scenario, spec = world(number)
        assert set(scenario.contract.slices) == set(SLICES)
        assert draw_spec(number)[0]["faults"] == spec["faults"]


def test_a_policy_is_compared_seed_by_seed() -> None:
    """One difference per seed, and none where a policy does as ``fixed-bare`` does."""
    scenario, _ = world(3)
    ((name, found),) = differences(scenario, ("fixed",), (1, 2))
    assert name == "fixed"
    assert found.shape == (2,)
    assert np.isfinite(found).all()


def test_all_worlds_are_summed_up_by_policy() -> None:
    """Mean and worst, and how many lie below half a point of harm."""
    (line,) = summary({"sequential": [2.0, -0.4, -1.0]})
    assert line == "sequential: mean +0.20, worst -1.00 points, harm in 1 of 3 worlds"
