"""The law of revisions finds an empty rule, and a revision that nobody saw."""

from __future__ import annotations

import pytest

from tests.support.cluster.cluster_worlds import Object
from tests.support.cluster.route_revisions import assert_never_empty


def revision(generation: int, kernel: int = 1) -> Object:
    """A route whose only kernel has this weight, beside what refuses."""
    refs = [{"name": "chat-fp8", "weight": kernel}, {"name": "selvage-refuse", "weight": 1}]
    metadata = {"uid": "u", "generation": generation, "resourceVersion": str(generation)}
    return {"metadata": metadata, "spec": {"rules": [{"backendRefs": refs}]}}


def test_whole_revisions_pass() -> None:
    """A revision may change the status alone and keep its generation."""
    assert_never_empty([revision(1), revision(1), revision(2)])


@pytest.mark.parametrize("seen", [[], [revision(1), revision(2, kernel=0)], [revision(1), revision(3)]])
def test_what_is_empty_or_was_missed_fails(seen: list[Object]) -> None:
    """No revision at all, a rule without a kernel, and a generation that nobody saw fail."""
    with pytest.raises(AssertionError):
        assert_never_empty(seen)
