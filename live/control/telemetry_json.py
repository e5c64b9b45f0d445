"""Telemetry of one fleet as compact, lossless JSON: decisions on the read-back values are identical.

An array is ``{"t": type, "s": shape, "v": values}``. If at least half of the values are equal, that value is
``"f"``, and ``"i"`` and ``"v"`` hold the positions and values of the others. NaN and infinities are strings.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.errors import StateError
from contracts.loading.untrusted import MALFORMED
from contracts.telemetry import EngineCounters, FleetTelemetry, GatewayCounts, ProbeSamples

_PARTS = {"engine": EngineCounters, "gateway": GatewayCounts, "probes": ProbeSamples}


def telemetry_to_json(seen: FleetTelemetry) -> dict[str, Any]:
    """``seen`` as an object of plain values."""
    return {
        entry.name: (
            _part(getattr(seen, entry.name)) if entry.name in _PARTS else _pack(getattr(seen, entry.name))
        )
        for entry in fields(FleetTelemetry)
    }


def telemetry_from_json(stored: Any) -> FleetTelemetry:
    """The telemetry that ``telemetry_to_json`` encoded; StateError for anything else."""
    try:
        with np.errstate(all="raise"):  # such as NaN in an integer array
            found: dict[str, Any] = {
                entry.name: (
                    _whole(_PARTS[entry.name], stored[entry.name])
                    if entry.name in _PARTS
                    else _unpack(stored[entry.name])
                )
                for entry in fields(FleetTelemetry)
            }
        return FleetTelemetry(**found)
    except (*MALFORMED, SyntaxError, FloatingPointError) as error:  # SyntaxError: an invalid dtype string
        raise StateError(f"telemetry: expected what a decision log holds, got {error!r}"[:300]) from None


def _part(value: Any) -> dict[str, Any]:
    return {entry.name: _pack(getattr(value, entry.name)) for entry in fields(value)}


def _whole(kind: Any, stored: Any) -> Any:
    return kind(**{entry.name: _unpack(stored[entry.name]) for entry in fields(kind)})


def _pack(array: NDArray[Any]) -> dict[str, Any]:
    values = [_plain(value) for value in array.ravel().tolist()]
    packed: dict[str, Any] = {"t": array.dtype.str, "s": list(array.shape)}
    if not values:
        return packed | {"v": []}
    fill, count = Counter(values).most_common(1)[0]
    if len(values) < 4 or 2 * count < len(values):
        return packed | {"v": values}
    others = [place for place, value in enumerate(values) if value != fill]
    return packed | {"f": fill, "i": others, "v": [values[place] for place in others]}


def _unpack(packed: dict[str, Any]) -> NDArray[Any]:
    kind, shape = np.dtype(packed["t"]), tuple(int(length) for length in packed["s"])
    if kind.kind not in "ifb" or math.prod(shape) > 10_000_000:
        raise ValueError(f"an array of {kind} {shape}")
    values = np.array(
        [float(value) if isinstance(value, str) else value for value in packed["v"]], dtype=kind
    )
    if "f" not in packed:
        return values.reshape(shape)
    fill = packed["f"]
    array = np.full(math.prod(shape), float(fill) if isinstance(fill, str) else fill, dtype=kind)
    array[np.array(packed["i"], dtype=np.int64)] = values
    return array.reshape(shape)


def _plain(value: Any) -> Any:
    """-0.0 becomes text, because as a number it would compare equal to 0.0 and lose its sign."""
    if isinstance(value, float) and (
        not math.isfinite(value) or (value == 0.0 and math.copysign(1, value) < 0)
    ):
        return str(value)
    return value
