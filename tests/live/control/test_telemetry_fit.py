"""Stored telemetry is used only if every array fits the layout."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from contracts.errors import StateError
from contracts.telemetry import FleetTelemetry
from live.control.replay import TelemetryShapes
from tests.support.fleets.builders import make_layout
from tests.support.fleets.worlds import script

LAYOUT = make_layout(kernels=2, slices=1, per_kernel=2)


def seen() -> FleetTelemetry:
    """One tick of the layout, with a probe."""
    return next(one for one in script(LAYOUT, 40) if one.probes.replica.size)


def test_what_a_log_holds_of_this_layout_fits() -> None:
    """Every tick of a log of the layout is accepted."""
    for one in script(LAYOUT, 20):
        TelemetryShapes(LAYOUT).refuse_others(one)


def test_other_types_shapes_and_places_are_refused() -> None:
    """An array of another type, shape or pool, and a probe of an unknown replica."""
    good = seen()
    probes = good.probes
    for bad in (
        replace(good, running=good.running.astype(np.float32)),
        replace(good, running=good.running[0]),
        replace(good, running=good.running[:, :-1]),
        replace(good, engine=replace(good.engine, span_s=good.engine.span_s[:, :1])),
        replace(good, probes=replace(probes, valid=probes.valid[:, :0])),
        replace(good, probes=replace(probes, replica=probes.replica + len(LAYOUT.replicas))),
        replace(good, probes=replace(probes, slice=probes.slice - len(LAYOUT.slices))),
    ):
        with pytest.raises(StateError, match="another pool"):
            TelemetryShapes(LAYOUT).refuse_others(bad)
