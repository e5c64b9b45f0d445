"""Reads scrapes back from a Prometheus through its HTTP API, with one query for all servers of a pool.

The query is an instant query of a range, so the answer holds samples with the instants of their scrapes. An
instant vector would carry the instant of the query, and stale data would not be recognised. The samples
become the same readings as a scrape of ``/metrics`` (``live.observe.metrics``).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from prometheus_client.samples import Sample

from contracts.loading.untrusted import MALFORMED
from contracts.units import MS_PER_S
from live.errors import LiveError
from live.observe.metrics import READ, STARTED, EngineReading, ReadFields, fields_of
from live.observe.prometheus_api import PrometheusError

#: Labels that distinguish targets of one pod: two jobs that scrape it, or a second container.
_TARGET = ("job", "instance")
#: Labels that determine which number of a reading a sample belongs to.
_TOLD = ("finished_reason", "le")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodQuery:
    """The samples to query. window_s: their largest age."""

    namespace: str
    window_s: float
    pod_label: str = "pod"
    namespace_label: str = "namespace"

    def text(self, pods: Collection[str]) -> str:
        """PromQL for all samples of ``pods`` that are read, with the instants of their scrapes."""
        names = "|".join(sorted(READ))
        listed = "|".join(one.replace(".", "[.]") for one in sorted(pods))
        where = f'{self.namespace_label}="{self.namespace}",{self.pod_label}=~"{listed}"'
        return f'{{__name__=~"{names}",{where}}}[{math.ceil(self.window_s * MS_PER_S)}ms]'


@dataclass(frozen=True, slots=True, kw_only=True)
class _Series:
    """One time series of the answer: its newest sample's value and scrape instant."""

    labels: Mapping[str, str]
    at_s: float  # Unix time
    value: float

    @property
    def key(self) -> tuple[str, ...]:
        """Name and labels that determine the number it belongs to; "" for a missing label."""
        return (self.labels["__name__"], *(self.labels.get(one, "") for one in _TOLD))

    @property
    def target(self) -> tuple[str, ...]:
        """The scraped target."""
        return tuple(self.labels.get(one, "") for one in _TARGET)


def readings_of(data: Any, pod_label: str) -> dict[str, EngineReading]:
    """Pod -> its newest scrape, from the ``data`` of an answer; PrometheusError if that is no matrix."""
    pods: defaultdict[str, defaultdict[tuple[str, ...], list[_Series]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for one in _matrix(data):
        pods[one.labels.get(pod_label, "")][one.target].append(one)
    newest = {pod: _newest(list(targets.values())) for pod, targets in pods.items() if pod}
    try:
        return {pod: _reading(series) for pod, series in newest.items() if series}
    except LiveError as error:  # a histogram edge that is no number
        raise PrometheusError("UnreadableAnswer", str(error)) from None


def _matrix(data: Any) -> list[_Series]:
    """Every series of the answer that has a sample and a name that is read."""
    try:
        if data["resultType"] != "matrix":
            raise ValueError(f"a {data['resultType']!r:.40}")
        found = [_series(one) for one in data["result"]]
    except MALFORMED as error:
        message = f"expected the samples of a range, got {error!r:.120}"
        raise PrometheusError("UnreadableAnswer", f"{message}; is it the HTTP API of a Prometheus?") from None
    return [one for one in found if one is not None and one.labels.get("__name__") in READ]


def _series(told: Any) -> _Series | None:
    """The series; None without a sample. Raises one of ``MALFORMED`` if it is no series."""
    labels = {str(name): str(value) for name, value in told["metric"].items()}
    samples = [(float(at_s), value) for at_s, value in told.get("values") or ()]
    if not samples:
        return None
    at_s, value = max(samples, key=lambda one: one[0])
    if not math.isfinite(at_s):
        raise ValueError(f"{at_s} is no instant")
    return _Series(labels=labels, at_s=at_s, value=float(value))


def _newest(targets: Sequence[list[_Series]]) -> list[_Series]:
    """Samples of the newest scrape, of the target that reported an engine most recently; none if none did.

    A name that this scrape lacks is unknown, whatever an earlier scrape stated.
    """
    engines = [one for one in targets if any(series.key[0] != STARTED for series in one)]
    if not engines:
        return []
    chosen = max(engines, key=lambda one: (max(series.at_s for series in one), one[0].target))
    at_s = max(series.at_s for series in chosen)
    return [series for series in chosen if series.at_s == at_s]


def _reading(series: Sequence[_Series]) -> EngineReading:
    """The reading of a scrape with these samples."""
    ordered = sorted(series, key=lambda one: (one.key, sorted(one.labels.items())))
    fields = _fields(tuple(one.key for one in ordered))
    return fields.reading(np.array([one.value for one in ordered], dtype=np.float64), ordered[0].at_s)


@lru_cache(maxsize=256)
def _fields(keys: tuple[tuple[str, ...], ...]) -> ReadFields:
    """The samples of each number. Equal scrapes share the result, so ``increments`` can cache by it."""
    samples = [
        Sample(name, {label: told for label, told in zip(_TOLD, rest, strict=True) if told}, 0.0)
        for name, *rest in keys
    ]
    return fields_of(samples, whole=False)  # engines of a server have equal keys
