"""What guards of drills watch."""

from __future__ import annotations

from contracts.documents.drill import GUARD_METRICS
from faults.drill.guards import METRICS


def test_documents_allow_what_is_measured_and_nothing_else() -> None:
    """A drill that is valid can be watched, and whatever can be watched may be asked for."""
    assert set(GUARD_METRICS) == set(METRICS)
