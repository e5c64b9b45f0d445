"""How long requests are between the gateway and a server: what no server's own metrics show.

By Little's law, requests under way at the gateway beyond those that run or wait in the engine, over those
that end in a second, are the mean time that one spends outside of the engine: a slow network, a proxy beside
the server, or the server's own front. It is taken at every scrape; what counts is the least of the newest
``SCRAPES``, so that neither a burst nor two clocks that differ make anybody late. Where the gateway does not
tell what it has under way at a replica, nothing is known.

What a server then says of its answers' times is read as their clients saw them: later by that much.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import HISTOGRAM_EDGES_MS, LATENCY_FAMILIES, FleetTelemetry
from contracts.units import MS_PER_S
from controller.perceive.on_the_way_pass import Shown, follow

#: Families of times that begin with the request.
_WHOLE = tuple(LATENCY_FAMILIES.index(name) for name in ("latency_ms", "ttft_ms"))
_EDGES_MS = np.array([0.0, *HISTOGRAM_EDGES_MS])


def follow_the_way(
    way_s: NDArray[np.float64], telemetry: FleetTelemetry, fresh: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """``way_s`` [B, R, SCRAPES] with what the ``fresh`` scrapes bool [B, R] show, the newest last; and by how
    much answers are late, float64 [B, R]: what every one of the newest showed at least, 0 where that is not
    known or nothing that counts.

    NaN where nobody tells, and where nothing is under way and nothing ended. One request more is taken to
    have ended than did: who answers little is not late for that.
    """
    plain, engine = np.ascontiguousarray, telemetry.engine
    shown = Shown(
        plain(telemetry.under_way),
        plain(telemetry.running),
        plain(telemetry.waiting),
        plain(engine.span_s),
        plain(engine.finished),
        fresh,
    )
    after_s, late_s = way_s.copy(), np.zeros(fresh.shape)
    follow(after_s, late_s, tuple(shown))
    return after_s, late_s


def as_clients_saw(telemetry: FleetTelemetry, late_s: NDArray[np.float64]) -> FleetTelemetry:
    """``telemetry`` with histograms of servers whose answers come ``late_s`` [B, R] later.

    Between two edges answers are taken as evenly spread, and rounded to be in time.
    """
    if not bool(late_s.any()):
        return telemetry
    seen = telemetry.latency_le.copy()
    for b, r in np.argwhere(late_s > 0.0):
        began_ms = _EDGES_MS[1:] - late_s[b, r] * MS_PER_S
        for family in _WHOLE:
            known = np.concatenate(([0], seen[b, r, family, :-1]))
            seen[b, r, family, :-1] = np.ceil(np.interp(began_ms, _EDGES_MS, known))
    return replace(telemetry, latency_le=seen)
