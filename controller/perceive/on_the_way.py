"""How long requests are between the gateway and a server: what no server's own metrics show.

By Little's law, requests under way at the gateway beyond those that run or wait in the engine, over those
that end in a second, are the mean time that one spends outside of the engine: a slow network, a proxy beside
the server, or the server's own front. It is taken block by block of scrapes, with the least that any of them
showed; what counts is the least of the newest ``BLOCKS``, so that neither a burst nor two clocks that differ
make anybody late. Where the gateway does not tell what it has under way at a replica nothing is known, nor
where nothing ends: whoever hangs is not late.

What a server then says of its answers' times is read as their clients saw them: later by that much.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import LATENCY_FAMILIES, FleetTelemetry
from contracts.units import MS_PER_S
from controller.cells import some_in
from controller.perceive.on_the_way_pass import Shown, follow
from controller.state import ControllerState

#: Families of times that begin with the request: what is on the way longer is in them, and in no other.
FROM_REQUEST = tuple(LATENCY_FAMILIES.index(name) for name in ("latency_ms", "ttft_ms"))


class Way(NamedTuple):
    """What is known of the time between gateway and servers."""

    way_s: NDArray[np.float64]  # [B, R, BLOCKS], the newest last; NaN: nothing ended, or nobody tells
    block: NDArray[np.float64]  # [B, R, BLOCK_COLUMNS], the block under way
    late_s: NDArray[np.float64]  # [B, R], what every block showed at least; 0: nothing that counts


def follow_the_way(state: ControllerState, telemetry: FleetTelemetry, fresh: NDArray[np.bool_]) -> Way:
    """What ``state`` knew with what the ``fresh`` scrapes bool [B, R] show."""
    plain, engine = np.ascontiguousarray, telemetry.engine
    shown = Shown(plain(telemetry.outside), plain(engine.span_s), plain(engine.finished), fresh)
    way = Way(state.way_s.copy(), state.way_block.copy(), np.zeros(fresh.shape))
    follow(*way, tuple(shown))
    return way


def as_clients_saw(
    telemetry: FleetTelemetry, late_s: NDArray[np.float64], edges_ms: tuple[float, ...]
) -> FleetTelemetry:
    """``telemetry`` with histograms of servers whose answers come ``late_s`` [B, R] later.

    Between two of ``edges_ms`` [E] answers are taken as evenly spread, and rounded to be in time.
    """
    if not some_in(late_s):
        return telemetry
    seen, edges = telemetry.latency_le.copy(), np.array([0.0, *edges_ms])
    for b, r in np.argwhere(late_s > 0.0):
        began_ms = edges[1:] - late_s[b, r] * MS_PER_S
        for family in FROM_REQUEST:
            known = np.concatenate(([0], seen[b, r, family, :-1]))
            seen[b, r, family, :-1] = np.ceil(np.interp(began_ms, edges, known))
    return replace(telemetry, latency_le=seen)
