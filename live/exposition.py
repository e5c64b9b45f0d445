"""The text that servers export to Prometheus, as samples."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from contracts.loading.untrusted import MALFORMED
from live.errors import LiveError


def read_samples(text: str) -> list[Sample]:
    """Every sample of ``text`` in its order; LiveError where it is no Prometheus exposition."""
    try:
        return [one for family in text_string_to_metric_families(text) for one in family.samples]
    except MALFORMED as error:
        raise LiveError(f"/metrics is no Prometheus text: {error}") from error


def sample_sums(samples: Sequence[Sample]) -> dict[str, float]:
    """Sample's name -> sum over the engines of the server."""
    totals: dict[str, float] = {}
    for one in samples:
        totals[one.name] = totals.get(one.name, 0.0) + float(one.value)
    return totals
