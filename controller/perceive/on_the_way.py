"""How long requests are between the gateway and a server: what no server's own metrics show.

By Little's law, requests under way at the gateway beyond those that run or wait in the engine, over those
that end in a second, are the mean time that one spends outside of the engine: a slow network, a proxy beside
the server, or the server's own front. It is taken at every scrape; what counts is the least of the newest
``SCRAPES``, so that neither a burst nor two clocks that differ make anybody late. Where the gateway does not
tell what it has under way at a replica, nothing is known.

What a server then says of its answers' times is read as their clients saw them: later by that much.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import HISTOGRAM_EDGES_MS, LATENCY_FAMILIES, FleetTelemetry
from contracts.units import MS_PER_S
from controller.state import ControllerState

#: So many scrapes in a row have to show it.
SCRAPES = 3
#: Shorter times are none: a scrape and a reading of the gateway lie as far apart.
LEAST_S = 0.5
#: Families of times that begin with the request.
_WHOLE = tuple(LATENCY_FAMILIES.index(name) for name in ("latency_ms", "ttft_ms"))
_EDGES_MS = np.array([0.0, *HISTOGRAM_EDGES_MS])


def follow_the_way(
    way_s: NDArray[np.float64], telemetry: FleetTelemetry, fresh: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """``way_s`` [B, R, SCRAPES] with what the ``fresh`` scrapes bool [B, R] show, the newest last.

    NaN where nobody tells, and where nothing is under way and nothing ended. One request more is taken to
    have ended than did: who answers little is not late for that.
    """
    if not bool(fresh.any()):
        return way_s
    ended = telemetry.engine.finished
    outside = np.maximum(telemetry.under_way - telemetry.running - telemetry.waiting, 0.0)
    each_s = np.where(outside + ended > 0.0, outside * telemetry.engine.span_s / (ended + 1.0), np.nan)
    moved = np.concatenate((way_s[..., 1:], each_s[..., None]), axis=2)
    return np.where(fresh[..., None], moved, way_s)


def late_by_s(state: ControllerState) -> NDArray[np.float64]:
    """float64 [B, R], what every one of the newest scrapes showed at least; 0: nothing that counts or is
    known.
    """
    least_s = state.way_s.min(axis=2)
    return np.where(least_s >= LEAST_S, least_s, 0.0)


def as_clients_saw(latency_le: NDArray[np.int64], late_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """Histograms [B, R, F, E + 1] of servers whose answers come ``late_s`` [B, R] later.

    Between two edges answers are taken as evenly spread, and rounded to be in time.
    """
    if not bool(late_s.any()):
        return latency_le
    seen = latency_le.copy()
    for b, r in np.argwhere(late_s > 0.0):
        began_ms = _EDGES_MS[1:] - late_s[b, r] * MS_PER_S
        for family in _WHOLE:
            known = np.concatenate(([0], latency_le[b, r, family, :-1]))
            seen[b, r, family, :-1] = np.ceil(np.interp(began_ms, _EDGES_MS, known))
    return seen
