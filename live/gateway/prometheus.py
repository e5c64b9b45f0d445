"""Counts of an external gateway, from the Prometheus metrics of its Envoy proxies, by cluster.

Envoy Gateway, Istio and a plain Envoy export the same counters with the label ``envoy_cluster_name``. They
name clusters differently, so a regular expression parses the names. No counts are derived from a missing
name, a proxy's first reading, a counter that decreased, or a proxy that does not answer.
"""

from __future__ import annotations

import math
import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import httpx
from prometheus_client.parser import text_string_to_metric_families

from contracts.loading.untrusted import MALFORMED
from live.bounded_http import whole_answer
from live.errors import LiveError
from live.ports import ClusterCounts, GatewaySample

LABEL = "envoy_cluster_name"
_BEGAN, _ENDED, _TIMED_OUT, _TIME = (
    "envoy_cluster_upstream_rq",
    "envoy_cluster_upstream_rq_xx",
    "envoy_cluster_upstream_rq_timeout",
    "envoy_cluster_upstream_rq_time_bucket",
)
_CODE, _CLASS = "envoy_response_code", "envoy_response_code_class"
_WELL, _BADLY = "2", "5"

#: Slice and kernel; kernel "" if unknown.
Place = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNames:
    """How a gateway names its clusters.

    pattern: a regular expression for whole names with the group ``slice`` and, if there are clusters per
    kernel, the group ``kernel``. slices, kernels: text of these groups -> name in the layout ("": shed
    traffic).
    """

    pattern: re.Pattern[str]
    slices: Mapping[str, str]
    kernels: Mapping[str, str]

    def place(self, cluster: str) -> Place | None:
        """Slice and kernel of ``cluster``; None if the cluster does not belong to this fleet."""
        found = self.pattern.fullmatch(cluster)
        caught = {} if found is None else found.groupdict()
        name = self.slices.get(caught.get("slice") or "")
        if name is None or (caught.get("kernel") and caught["kernel"] not in self.kernels):
            return None
        return name, self.kernels.get(caught.get("kernel") or "", "")


@dataclass(slots=True)
class ClusterReading:
    """Counters of one place since its proxy started; None: not exported."""

    began: float | None = None
    well: float | None = None
    badly: float | None = None
    timed_out: float | None = None
    counts: dict[float, float] = field(default_factory=dict)  # edge in ms -> answers up to it


#: Fields of ``ClusterReading`` that are counters.
_COUNTERS = ("began", "well", "badly", "timed_out")

Readings = dict[Place, ClusterReading]


def read_clusters(text: str, names: ClusterNames) -> Readings:
    """Readings of the clusters that ``names`` knows; LiveError if ``text`` is no Prometheus exposition."""
    found: defaultdict[Place, ClusterReading] = defaultdict(ClusterReading)
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                place = names.place(sample.labels.get(LABEL, ""))
                if place is not None:
                    name, value = sample.name.removesuffix("_total"), _count(sample.value)
                    _note(found[place], name, sample.labels, value)
    except MALFORMED as error:
        raise LiveError(f"the gateway's metrics are no Prometheus text: {error}") from error
    return dict(found)


def _count(value: float) -> float:
    """``value``; ValueError if it cannot be a count."""
    if not math.isfinite(value):
        raise ValueError(f"a counter is {value}")
    return float(value)


def _note(reading: ClusterReading, name: str, labels: Mapping[str, str], value: float) -> None:
    if name == _BEGAN and _CODE not in labels:
        reading.began = (reading.began or 0.0) + value
    elif name == _ENDED and labels.get(_CLASS) == _WELL:
        reading.well = (reading.well or 0.0) + value
    elif name == _ENDED and labels.get(_CLASS) == _BADLY:
        reading.badly = (reading.badly or 0.0) + value
    elif name == _TIMED_OUT:
        reading.timed_out = (reading.timed_out or 0.0) + value
    elif name == _TIME:
        edge = float(labels["le"])
        reading.counts[edge] = reading.counts.get(edge, 0.0) + value


def cluster_deltas(before: Readings, now: Readings) -> list[ClusterCounts]:
    """Differences between two readings of one proxy; new places and decreased counters are left out.

    Envoy exports a class of answers only after the first such answer, so a missing class counts as 0.
    """
    found = []
    for place, reading in now.items():
        last = before.get(place)
        if last is None:
            continue
        risen = [_risen(getattr(last, name), getattr(reading, name)) for name in _COUNTERS]
        if min(risen) < 0:
            continue
        edges = tuple(sorted(reading.counts)) if reading.counts.keys() == last.counts.keys() else ()
        counts = tuple(int(reading.counts[edge] - last.counts[edge]) for edge in edges)
        told = bool(counts) and min(counts) >= 0
        found.append(
            ClusterCounts(
                slice=place[0],
                kernel=place[1],
                offered=risen[0],
                answered=risen[1],
                failed=risen[2],
                timed_out=risen[3],
                edges_ms=edges if told else (),
                counts=counts if told else (),
            )
        )
    return found


def _risen(before: float | None, now: float | None) -> int:
    return int((now or 0.0) - (before or 0.0))


class GatewayMetrics:
    """``live.ports.GatewayStatistics`` over the Prometheus metrics of proxies, one URL each. Call ``close``.

    Requests run in threads, so a slow proxy does not delay the caller. ``problem``: an error to report, or
    "".
    """

    def __init__(
        self, urls: Sequence[str], names: ClusterNames, client: httpx.Client, timeout_s: float = 2.0
    ) -> None:
        self._names, self._client, self._timeout_s = names, client, timeout_s
        self._threads = ThreadPoolExecutor(len(urls), thread_name_prefix="gateway")
        self._asked: dict[str, Future[Readings] | None] = dict.fromkeys(urls)
        self._last: dict[str, Readings] = {}
        self._problems: dict[str, str] = {}

    @property
    def problem(self) -> str:
        """The present errors, by proxy."""
        return "; ".join(self._problems[url] for url in sorted(self._problems))

    def close(self) -> None:
        """Stop reading."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def read(self) -> GatewaySample:
        """What the proxies counted between their two newest answers."""
        clusters: list[ClusterCounts] = []
        for url, asked in self._asked.items():
            if asked is not None:
                if not asked.done():
                    continue
                clusters += self._taken(url, asked)
            self._asked[url] = self._threads.submit(self._read, url)
        return GatewaySample(
            read_at_s=time.time(),
            requests=(),
            attempts=(),
            hosts=(),
            unreadable=0,
            clusters=tuple(clusters),
            tells_replicas=False,
        )

    def _taken(self, url: str, asked: Future[Readings]) -> list[ClusterCounts]:
        try:
            now = asked.result()
        except Exception as error:  # whatever the error, the proxy is read again
            self._problems[url] = f"gateway {url}: {str(error) or type(error).__name__}"
            return []
        self._problems.pop(url, None)
        if not now:
            self._problems[url] = f"gateway {url}: no cluster is named as {self._names.pattern.pattern}"
        before, self._last[url] = self._last.get(url, {}), now
        return cluster_deltas(before, now)

    def _read(self, url: str) -> Readings:
        answer = whole_answer(self._client, "GET", url, self._timeout_s)
        if answer.status_code != httpx.codes.OK:
            raise LiveError(f"HTTP {answer.status_code}")
        return read_clusters(answer.text, self._names)
