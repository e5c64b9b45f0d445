"""What the conditions of a policy say when pods cannot be read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from k8s.operator.admission import PolicyAdmission
from k8s.operator.report import _resolved
from k8s.operator.route_loop import RouteLoop
from k8s.operator.status.conditions import condition

TAKEN = cast(
    PolicyAdmission, SimpleNamespace(resolved=condition("ResolvedRefs", True, "Resolved", "all found"))
)


def loop(error: str, pods: tuple[str, ...], told: tuple[str, ...] = ()) -> RouteLoop:
    """The part of a policy's loop that the report reads."""
    found: Any = SimpleNamespace(
        discovery=SimpleNamespace(problems=(), pods=pods),
        standing=SimpleNamespace(discovery_error=error, state_problem=""),
        notes=told,
    )
    return cast(RouteLoop, found)


@pytest.mark.parametrize(
    ("error", "pods", "status", "said"),
    [
        ("", ("a-0",), "True", "all found"),
        (
            "timed out",
            ("a-0",),
            "True",
            "all found; pods stand as last seen, because they cannot be read: timed out",
        ),
        ("timed out", (), "Unknown", "timed out"),
    ],
)
def test_pods_known_only_as_last_seen_are_reported(
    error: str, pods: tuple[str, ...], status: str, said: str
) -> None:
    """Known pods stay in use, and the message says that they are as last seen.

    If no pod was ever seen, the status is Unknown.
    """
    found = _resolved(TAKEN, loop(error, pods))
    assert (found.status, found.message) == (status, said)
