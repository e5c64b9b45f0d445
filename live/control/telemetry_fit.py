"""Whether stored telemetry is of a layout: compiled code reads arrays without looking at their bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.layout import FleetLayout
from contracts.errors import StateError
from contracts.telemetry import FleetTelemetry
from live.control.source import NO_ROWS, nothing_probed
from live.observe.record import TelemetryRecorder

_PROBES = "probes."


class TelemetryShapes:
    """Types and shapes of the arrays of one fleet of ``layout``."""

    def __init__(self, layout: FleetLayout) -> None:
        nothing = TelemetryRecorder(layout, {}).record(0.0, (), {}, NO_ROWS, nothing_probed(layout))
        self._expected = {name: (array.dtype, array.shape) for name, array in _arrays(nothing)}
        self._counts = {"replica": len(layout.replicas), "slice": len(layout.slices)}

    def refuse_others(self, seen: FleetTelemetry) -> None:
        """StateError where an array of ``seen`` has another type or shape, or a probe names a replica or
        a slice that is not there.
        """
        probes = seen.probes.replica.shape[1] if seen.probes.replica.ndim == 2 else 0
        for name, array in _arrays(seen):
            kind, shape = self._expected[name]
            if name.startswith(_PROBES):
                shape = (1, probes, *shape[2:])
            if (array.dtype, array.shape) != (kind, shape):
                told = f"expected {kind} {shape}, got {array.dtype} {array.shape}"
                raise StateError(f"telemetry.{name}: {told}; it is of another pool")
        for name, count in self._counts.items():
            found: NDArray[np.int64] = getattr(seen.probes, name)
            if found.size and not (int(found.min()) >= 0 and int(found.max()) < count):
                told = f"expected numbers from 0 to {count - 1}"
                raise StateError(f"telemetry.{_PROBES}{name}: {told}; it is of another pool")


def _arrays(value: Any, prefix: str = "") -> Iterator[tuple[str, NDArray[Any]]]:
    for entry in fields(value):
        found = getattr(value, entry.name)
        if isinstance(found, np.ndarray):
            yield f"{prefix}{entry.name}", found
        else:
            yield from _arrays(found, f"{prefix}{entry.name}.")
