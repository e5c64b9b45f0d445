"""Calibrated thresholds of clauses on traffic and gauges, whose observations are correlated through queues.

A guaranteed threshold ``log ARL0`` needs observations that are fair given the past. Scrapes are not: one long
queue gives many bad scrapes in a row. ``scripts.studies.detection.calibrate`` finds the threshold for each
ARL0 by block calibration on simulated telemetry, under the least favourable law that is still healthy: queues
whose mean share over the objective equals the limit. Scrapes of replicas are first weighed by those of their
peers, as in the sequential detector. This removes most of the dependence, because a long queue shows on all
replicas. How much it removes depends on the number of peers, so streams are calibrated by the number of
replicas of their kernel. The shipped table (``SHIPPED``) holds the result with its provenance. The code that
sets up a controller reads it; the controller itself reads no file.

Between calibrated points, thresholds are interpolated in log ARL0. Beyond the largest point they follow the
line through the last point and the last but two, because the tail of an additive statistic is at most
asymptotically exponential. Points are upper confidence limits that are wider further out, so the line is
rather too steep. No level is above ``MOST``: evidence is bounded by ``CEILING``, and a stream that could
never raise an alarm would be useless. Clauses without recorded healthy observations (failures, fingerprints,
trace fields) have no stream in the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from contracts.compiled.contract import CompiledContract
from contracts.errors import DocumentError, Problem
from contracts.loading.shipped import LIBRARY
from contracts.loading.untrusted import json_of
from contracts.loading.uris import resolve_uri
from contracts.telemetry import LATENCY_FAMILIES, Source
from controller.detect.streams.passes import CEILING
from controller.detect.streams.protocol import Floats

SHIPPED = f"{LIBRARY}calibration/traffic.json"
#: Highest level, in nats: 1 % below the highest evidence that is kept.
MOST = 0.99 * math.log(CEILING)
#: Kinds of streams in the table: a latency family, or KV use.
KINDS = (*LATENCY_FAMILIES, "kv_used_ratio")
#: Units of streams: counts of a replica's server over all its requests between two scrapes, or the gateway's
#: counts of a slice on a kernel between two flushes.
UNITS = ("replica", "kernel")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficStream:
    """One kind of stream, calibrated at P points."""

    #: One of ``KINDS``.
    kind: str
    #: One of ``UNITS``.
    unit: str
    #: Number of replicas of the kernel.
    replicas: int
    #: float64 [P], ascending, in observations.
    arl0: Floats
    #: float64 [P], ascending, log-evidence.
    threshold: Floats

    def level(self, arl0: Floats) -> Floats:
        """Log-evidence of an alarm at each ``arl0`` in observations; inf stays inf."""
        x, known = np.log(self.arl0), np.isfinite(arl0)
        at = np.log(np.where(known, arl0, 2.0))
        slope = (self.threshold[-1] - self.threshold[-3:][0]) / (x[-1] - x[-3:][0])
        inside = np.interp(at, x, self.threshold)
        beyond = self.threshold[-1] + slope * (at - x[-1])
        return np.asarray(np.where(known, np.where(at > x[-1], beyond, inside), np.inf))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficCalibration:
    """Every calibrated stream, with the provenance of the table."""

    streams: tuple[TrafficStream, ...]
    provenance: Mapping[str, Any]

    def levels(self, arl0: Floats, contract: CompiledContract, unit: str, replicas: int) -> Floats:
        """Thresholds [..., C] of ``arl0`` [..., C] for a ``unit`` of a kernel with ``replicas``.

        For a replica, ``replicas`` counts itself and its peers with traffic. NaN for clauses without a
        stream.
        """
        levels = np.full(arl0.shape, np.nan)
        for clause in range(arl0.shape[-1]):
            kind = _kind(int(contract.source[clause]), int(contract.column[clause]))
            by_count = {row.replicas: row for row in self.streams if (row.kind, row.unit) == (kind, unit)}
            if by_count:
                levels[..., clause] = _level(by_count, arl0[..., clause], replicas)
        return levels


def _level(by_count: Mapping[int, TrafficStream], arl0: Floats, replicas: int) -> Floats:
    """The higher level of the two nearest calibrated numbers of replicas.

    Beyond the largest number it is at least the guaranteed one of fair observations: with very many peers the
    shared load is divided out, and no dependence is left.
    """
    below = max((count for count in by_count if count <= replicas), default=min(by_count))
    above = min((count for count in by_count if count >= replicas), default=below)
    level = np.maximum(by_count[below].level(arl0), by_count[above].level(arl0))
    if replicas > max(by_count):
        level = np.maximum(level, np.log(arl0))
    return np.asarray(np.where(np.isfinite(level), np.minimum(level, MOST), level))


def _kind(source: int, column: int) -> str:
    if source == Source.LATENCY:
        return LATENCY_FAMILIES[column]
    return "kv_used_ratio" if source == Source.KV_USED else ""


@lru_cache(maxsize=1)
def shipped_traffic() -> TrafficCalibration:
    """The shipped calibrated thresholds of traffic clauses."""
    file = resolve_uri(SHIPPED, "selvage")
    return parse_traffic(file.read_text(), str(file))


def parse_traffic(text: str, file: str) -> TrafficCalibration:
    """The table in ``text``; DocumentError where it is not one."""
    try:
        data = json_of(text)
        streams = tuple(_stream(row) for row in data["streams"])
        provenance = dict(data["provenance"])
    except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
        raise _refused(file, "streams", "a table of calibrated streams", str(error)) from error
    if len({(one.kind, one.unit, one.replicas) for one in streams}) != len(streams):
        raise _refused(file, "streams", "each stream once", f"{len(streams)} streams")
    for index, one in enumerate(streams):
        rising = bool((np.diff(one.arl0) > 0.0).all() and (np.diff(one.threshold) > 0.0).all())
        if one.arl0.shape != one.threshold.shape or one.arl0.size < 2 or not rising or one.arl0[0] <= 1.0:
            raise _refused(file, f"streams[{index}]", "two or more rising points", f"{one.arl0.tolist()}")
    if {one.unit for one in streams} != set(UNITS):
        raise _refused(file, "streams", f"streams of {', '.join(UNITS)}", f"{len(streams)} streams")
    return TrafficCalibration(streams=streams, provenance=provenance)


def _stream(row: Mapping[str, Any]) -> TrafficStream:
    points = np.array([[point["arl0"], point["threshold"]] for point in row["points"]], dtype=np.float64)
    if row["kind"] not in KINDS:
        raise ValueError(f"kind: expected one of {', '.join(KINDS)}, got {row['kind']!r}")
    return TrafficStream(
        kind=str(row["kind"]),
        unit=str(row["unit"]),
        replicas=int(row["replicas"]),
        arl0=points[:, 0],
        threshold=points[:, 1],
    )


def _refused(file: str, path: str, expected: str, actual: str) -> DocumentError:
    step = "write the table anew with python -m scripts.studies.detection.calibrate"
    problem = Problem(file=file, line=0, path=path, expected=expected, actual=actual, next_step=step)
    return DocumentError([problem])
