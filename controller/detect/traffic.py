"""Calibrated thresholds of clauses on traffic and gauges, whose observations follow each other's queues.

A guaranteed threshold ``log ARL0`` needs observations that are fair given the past. Scrapes are not: one
long queue is many bad scrapes in a row. ``scripts.studies.detection.calibrate`` finds by block calibration
on simulated telemetry which threshold has which ARL0 under the least favourable law that is still healthy:
queues whose share over the objective stands at its limit in the mean. Scrapes of replicas are weighed by
those of their peers first, as the sequential detector does, which takes most of the dependence away: a
queue is long everywhere. How much depends on how many peers there are, so streams are calibrated by the
replicas of their kernel. The table that ships (``SHIPPED``) holds the result with its provenance; whoever
sets a controller up reads it, the controller itself reads no file.

Between calibrated points thresholds are interpolated in log ARL0, beyond the largest they follow the line
from the last but two to the last: the tail of an additive statistic is asymptotically exponential, no more.
Points are upper limits, the further out the wider, so that the line is rather too steep. No level is
above ``MOST``: evidence is kept up to ``CEILING``, and a stream that could never alarm would say nothing.
Clauses of which nothing healthy can be recorded (failures, fingerprints, trace fields) have no stream in the
table.
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
#: What a stream of the table is of: a latency family, or KV use.
KINDS = (*LATENCY_FAMILIES, "kv_used_ratio")
#: Whose observations a stream is of: what the server of a replica counts of all its requests between two
#: scrapes, or what the gateway counts of a slice on a kernel between two flushes.
UNITS = ("replica", "kernel")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficStream:
    """One kind of stream, calibrated at P points."""

    #: One of ``KINDS``.
    kind: str
    #: One of ``UNITS``.
    unit: str
    #: Of the kernel.
    replicas: int
    #: float64 [P], ascending, in observations.
    arl0: Floats
    #: float64 [P], ascending, log-evidence.
    threshold: Floats

    def level(self, arl0: Floats) -> Floats:
        """Log-evidence of an alarm at each ``arl0`` in observations; inf stays."""
        x, known = np.log(self.arl0), np.isfinite(arl0)
        wanted = np.log(np.where(known, arl0, 2.0))
        slope = (self.threshold[-1] - self.threshold[-3:][0]) / (x[-1] - x[-3:][0])
        inside = np.interp(wanted, x, self.threshold)
        beyond = self.threshold[-1] + slope * (wanted - x[-1])
        return np.asarray(np.where(known, np.where(wanted > x[-1], beyond, inside), np.inf))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficCalibration:
    """Every calibrated stream, and what the table says of its making."""

    streams: tuple[TrafficStream, ...]
    provenance: Mapping[str, Any]

    def levels(self, arl0: Floats, contract: CompiledContract, unit: str, replicas: int) -> Floats:
        """Thresholds [..., C] of ``arl0`` [..., C] for a ``unit`` of a kernel of ``replicas`` (of a
        replica: itself and the peers that show anything); NaN for clauses that no stream is of.
        """
        found = np.full(arl0.shape, np.nan)
        for clause in range(arl0.shape[-1]):
            kind = _kind(int(contract.source[clause]), int(contract.column[clause]))
            mine = {one.replicas: one for one in self.streams if (one.kind, one.unit) == (kind, unit)}
            if mine:
                found[..., clause] = _level(mine, arl0[..., clause], replicas)
        return found


def _level(mine: Mapping[int, TrafficStream], arl0: Floats, replicas: int) -> Floats:
    """The higher level of the nearest counts of replicas that are calibrated; beyond the largest, at least
    what a fair observation needs: a load that very many share is divided out, and no dependence is left.
    """
    below = max((count for count in mine if count <= replicas), default=min(mine))
    above = min((count for count in mine if count >= replicas), default=below)
    found = np.maximum(mine[below].level(arl0), mine[above].level(arl0))
    if replicas > max(mine):
        found = np.maximum(found, np.log(arl0))
    return np.asarray(np.where(np.isfinite(found), np.minimum(found, MOST), found))


def _kind(source: int, column: int) -> str:
    if source == Source.LATENCY:
        return LATENCY_FAMILIES[column]
    return "kv_used_ratio" if source == Source.KV_USED else ""


@lru_cache(maxsize=1)
def shipped_traffic() -> TrafficCalibration:
    """Calibrated thresholds of traffic clauses, as they ship."""
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
