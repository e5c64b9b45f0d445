"""Time that requests spend between the gateway and a server; no server metric shows it.

It follows from Little's law. Take the requests in flight at the gateway, minus those that run or wait in the
engine, and divide by the requests that end per second. The result is the mean time outside of the engine: a
slow network, a proxy beside the server, or the server's own front end. One block of scrapes gives one value,
by the fewest requests outside in any of its scrapes. The estimate is the smallest value of the newest
``BLOCKS`` blocks, so that neither a burst nor a clock offset makes a replica late. The time is unknown if the
gateway does not report its requests in flight per replica, or if no request ends: a hung replica is not late.

The latencies that a server reports are then shifted by this time, to what its clients saw.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import LATENCY_FAMILIES, FleetTelemetry
from contracts.units import MS_PER_S
from controller.cells import some_in
from controller.perceive.on_the_way_pass import OutsideCounts, follow
from controller.state import ControllerState

#: Latency families that start with the request; only these contain the time on the way.
FROM_REQUEST = tuple(LATENCY_FAMILIES.index(name) for name in ("latency_ms", "ttft_ms"))


class Way(NamedTuple):
    """Estimate of the time between gateway and servers."""

    way_s: NDArray[np.float64]  # [B, R, BLOCKS], newest last; NaN: no request ended, or not reported
    block: NDArray[np.float64]  # [B, R, BLOCK_COLUMNS], the open block
    late_s: NDArray[np.float64]  # [B, R], smallest of all blocks; 0: too small to count


def follow_the_way(state: ControllerState, telemetry: FleetTelemetry, fresh: NDArray[np.bool_]) -> Way:
    """The estimate of ``state``, updated by the ``fresh`` scrapes bool [B, R]."""
    plain, engine = np.ascontiguousarray, telemetry.engine
    counts = OutsideCounts(plain(telemetry.outside), plain(engine.span_s), plain(engine.finished), fresh)
    way = Way(state.way_s.copy(), state.way_block.copy(), np.zeros(fresh.shape))
    follow(*way, tuple(counts))
    return way


def as_clients_saw(
    telemetry: FleetTelemetry, late_s: NDArray[np.float64], edges_ms: tuple[float, ...]
) -> FleetTelemetry:
    """``telemetry`` with latency histograms shifted by ``late_s`` [B, R].

    Answers between two of ``edges_ms`` [E] are assumed evenly spread, and counts are rounded in favour of
    the replica.
    """
    if not some_in(late_s):
        return telemetry
    latency_le, edges = telemetry.latency_le.copy(), np.array([0.0, *edges_ms])
    for b, r in np.argwhere(late_s > 0.0):
        began_ms = edges[1:] - late_s[b, r] * MS_PER_S
        for family in FROM_REQUEST:
            counts = np.concatenate(([0], latency_le[b, r, family, :-1]))
            latency_le[b, r, family, :-1] = np.ceil(np.interp(began_ms, edges, counts))
    return replace(telemetry, latency_le=latency_le)
