"""What the operator refuses to put in force."""

from __future__ import annotations

import numpy as np
import pytest

from controller.ports import RoutingPlan
from k8s.operator.actuator import emptied
from tests.support.live_fleets import LAYOUT


@pytest.mark.parametrize(
    ("rows", "forbidden", "ready", "empty"),
    [
        ([[0.0, 0.0, 1.0], [0.5, 0.5, 0.0]], None, {"fp16", "fp32"}, ["prose"]),
        ([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]], None, set(), []),
        ([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]], [[True, True], [True, False]], {"fp16", "fp32"}, []),
        ([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]], [[True, False], [True, False]], {"fp16"}, []),
        ([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]], [[True, False], [True, False]], {"fp32"}, ["prose"]),
        ([[0.0, 0.01, 0.99], [0.0, 1.0, 0.0]], None, {"fp16", "fp32"}, []),
    ],
)
def test_a_slice_is_emptied_only_where_nobody_could_serve_it(
    rows: list[list[float]], forbidden: list[list[bool]] | None, ready: set[str], empty: list[str]
) -> None:
    """All of a slice may be shed where no ready kernel is free of hard violations on it, and only there."""
    plan = RoutingPlan(
        table=np.array([rows]),
        in_rotation=np.ones((1, 3), dtype=np.bool_),
        version=np.array([1]),
        forbidden=None if forbidden is None else np.array([forbidden]),
    )
    assert emptied(plan, LAYOUT, frozenset(ready)) == empty
