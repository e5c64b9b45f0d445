"""Guards of drills."""

from __future__ import annotations

from contracts.documents.drill import GUARD_METRICS
from faults.drill.guards import METRICS


def test_documents_allow_what_is_measured_and_nothing_else() -> None:
    """Every guard of a valid drill has a metric, and every metric is allowed in documents."""
    assert set(GUARD_METRICS) == set(METRICS)
