"""Random worlds: every number gives a valid world, and always the same one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scripts.studies.worlds.drawn import SLICES, draw_spec
from scripts.studies.worlds.foreign import foreign_world
from scripts.studies.worlds.harm import HARM_POINTS, differences, summary, world
from scripts.studies.worlds.wider import draw_wider


@pytest.mark.parametrize("wider", [False, True])
def test_every_number_is_a_world(wider: bool) -> None:
    """Every drawn scenario is valid with a home for every slice, and the same each time."""
    draw = draw_wider if wider else draw_spec
    for number in range(25):
        scenario, spec = world(number, wider=wider)
        assert set(scenario.contract.slices) == set(SLICES)
        assert draw(number)[0]["faults"] == spec["faults"]


@pytest.mark.parametrize("alone", [False, True])
def test_every_foreign_number_is_a_world(tmp_path: Path, alone: bool) -> None:
    """Own engine, contract and slices, the same each time; with ``alone`` one kernel and no fault."""
    for number in range(3):
        scenario, spec = foreign_world(number, tmp_path, alone=alone)
        assert {one["slice"] for one in spec["workload"]["slice_mix"]} == set(scenario.contract.slices)
        assert {one["slice"] for one in spec["pool"]["home"]} == set(scenario.contract.slices)
        assert not alone or (len(scenario.layout.kernels) == 1 and not spec["faults"])
        again, same = foreign_world(number, tmp_path, alone=alone)
        assert same == spec
        assert again.setup.engine is not None
        assert scenario.setup.engine is not None
        np.testing.assert_array_equal(again.setup.engine.step_s, scenario.setup.engine.step_s)


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [
        207,  # answers of even length, of which a batch was thought too large: −17.2 points
        231,  # a first token that may take six seconds, and no request waited for it: −1.0
    ],
)
def test_a_lone_kernel_that_carries_more_than_is_thought_is_left_alone(tmp_path: Path, number: int) -> None:
    """Worlds without a fault in which ``sequential`` once shed requests that would have been in time."""
    scenario, _ = foreign_world(number, tmp_path, alone=True)
    ((_, found),) = differences(scenario, ("sequential",), (1, 2))
    assert found.mean() >= HARM_POINTS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "policy"),
    [
        (0, "hysteresis"),  # everything slow eightfold, by turns: −19.2 points
        (6, "sequential"),  # a slow replica of two, and both crash by turns: −1.9
        (10, "sequential"),  # no telemetry, and the last scrape showed a queue: −2.5
        (41, "hysteresis"),  # all of the wrong build for a while, and then right: −7.9
        (121, "sequential"),  # a build in the pool that was never good enough: −11.0
    ],
)
def test_what_was_mended_stays_so(number: int, policy: str) -> None:
    """Worlds in which a policy once did harm; comments: points of useful tokens then, on the same seeds."""
    scenario, _ = world(number, wider=True)
    ((_, found),) = differences(scenario, (policy,), (1, 2))
    assert found.mean() >= HARM_POINTS


def test_a_policy_is_compared_seed_by_seed() -> None:
    """One difference per seed, and 0 if a policy acts as ``fixed-bare`` does."""
    scenario, _ = world(3)
    ((name, found),) = differences(scenario, ("fixed",), (1, 2))
    assert name == "fixed"
    assert found.shape == (2,)
    assert np.isfinite(found).all()


def test_all_worlds_are_summed_up_by_policy() -> None:
    """Mean and worst, and the number below half a point of harm."""
    (line,) = summary({"sequential": [2.0, -0.4, -1.0]})
    assert line == "sequential: mean +0.20, worst -1.00 points, harm in 1 of 3 worlds"
