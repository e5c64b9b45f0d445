"""Parses the Prometheus text that servers export."""

from __future__ import annotations

import re
from collections.abc import Sequence

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from contracts.loading.untrusted import MALFORMED
from live.errors import LiveError

#: An OpenMetrics sample with an exemplar; the group is the part before the exemplar.
_EXEMPLAR = re.compile(r'([^\s{#]+(?:\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\})?\s+\S+(?:\s+\S+)?)\s+# \{.*')


def read_samples(text: str) -> list[Sample]:
    """Every sample of ``text``, in order; LiveError if it is no Prometheus exposition.

    OpenMetrics is accepted: its exemplars are dropped, and its other additions are comments.
    """
    if " # {" in text:
        text = "\n".join(map(_without_exemplar, text.split("\n")))
    try:
        return [one for family in text_string_to_metric_families(text) for one in family.samples]
    except MALFORMED as error:
        raise LiveError(f"/metrics is no Prometheus text: {error}") from error


def _without_exemplar(line: str) -> str:
    found = _EXEMPLAR.fullmatch(line) if " # {" in line else None
    return found.group(1) if found else line


def sample_sums(samples: Sequence[Sample]) -> dict[str, float]:
    """Sample name -> sum over the engines of the server."""
    totals: dict[str, float] = {}
    for one in samples:
        totals[one.name] = totals.get(one.name, 0.0) + float(one.value)
    return totals
