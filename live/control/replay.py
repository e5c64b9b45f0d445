"""Decides recorded telemetry again: must give the same decisions byte by byte, or shows what another set-up
does.

A what-if decides on telemetry that the logged decisions brought about: traffic that the other set-up would
have moved is still seen at its logged place. Stored telemetry must match the layout, or it is refused,
because compiled code reads arrays without bounds checks.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import FleetLayout
from contracts.errors import StateError
from contracts.loading.files import json_text
from contracts.loading.untrusted import MALFORMED
from contracts.telemetry import FleetTelemetry
from controller.decision import Decision
from controller.explain.tick import explain, record_json
from controller.initial import initial_state
from controller.options import ControllerSetup
from controller.state import ControllerState
from controller.state_json import state_from_json
from live.control.journal import BESIDE, record_texts
from live.control.source import NO_ROWS, nothing_probed
from live.control.telemetry_json import telemetry_from_json
from live.control.turns import decide, remembered_state
from live.observe.record import TelemetryRecorder

Row = dict[str, Any]
Watch = Callable[[ControllerState, ControllerState, Decision], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TickDifference:
    """One tick that was decided differently. moves: lines for people; fields: of the record that differ."""

    now_s: float
    fields: tuple[str, ...]
    logged: tuple[str, ...]
    replayed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a replay."""

    ticks: int
    starts: int
    notes: int
    promotions: int  # logged changes of stage or verdict; a replay does not decide them
    moved_logged: int  # ticks in which a weight or the rotation changed
    moved_replayed: int
    differences: tuple[TickDifference, ...] = field(default=())

    @property
    def identical(self) -> bool:
        """Whether every decision equals the logged one, byte by byte."""
        return not self.differences


def replay(rows: Iterable[Row], setup: ControllerSetup, watch: Watch | None = None) -> Replayed:
    """Decide every logged tick again under the set-up of the log, and compare byte by byte.

    watch: called with the state before and after each tick, and its decision.
    Raises StateError if a state in the log does not fit ``setup``.
    """
    return _Replay(setup=setup, exact=True, watch=watch).over(rows)


def what_if(rows: Iterable[Row], setup: ControllerSetup) -> Replayed:
    """Decide every logged tick under another ``setup``; only moves and quarantines are compared.

    It begins with an initial state and keeps its own table; its plans count as in force.
    """
    return _Replay(setup=setup, exact=False).over(rows)


@dataclass(slots=True, kw_only=True)
class _Replay:
    """A replay in progress."""

    setup: ControllerSetup
    exact: bool
    watch: Watch | None = None
    state: ControllerState | None = None
    counts: Counter[str] = field(default_factory=Counter)
    found: list[TickDifference] = field(default_factory=list)
    shapes: TelemetryShapes = field(init=False)

    def __post_init__(self) -> None:
        self.shapes = TelemetryShapes(self.setup.layout)

    def over(self, rows: Iterable[Row]) -> Replayed:
        for row in rows:
            self.counts[str(row.get("kind"))] += 1
            _refuse_other_rows(row)
            if row.get("kind") == "start":
                self._begin(row)
            elif row.get("kind") == "tick":
                self._compare(row, json.loads(self._decided(row)))
        return Replayed(
            ticks=self.counts["tick"],
            starts=self.counts["start"],
            notes=self.counts["note"],
            promotions=self.counts["promotion"],
            moved_logged=self.counts["moved logged"],
            moved_replayed=self.counts["moved replayed"],
            differences=tuple(self.found),
        )

    def _begin(self, row: Row) -> None:
        stored = row.get("state")
        if self.exact and stored is not None:
            self.state = state_from_json(json.dumps(stored), self.setup)
        elif self.exact or self.state is None:
            self.state = initial_state(self.setup, 1)

    def _decided(self, row: Row) -> str:
        """The record of a logged tick, decided again."""
        before, seen = self.state, telemetry_from_json(row.get("telemetry"))
        if before is None:
            raise StateError("decision log: a tick before any start; the beginning is missing")
        self.shapes.refuse_others(seen)
        after, decision = decide(before, seen, self.setup)
        in_force = bool(row["in_force"]) or not self.exact
        self.state = remembered_state(
            before, after, self.setup, in_force=in_force, spent_ms=float(row["spent_ms"])
        )
        if self.watch is not None:
            self.watch(before, self.state, decision)
        return record_json(explain(before, self.state, decision, self.setup))

    def _compare(self, logged: Row, again: Row) -> None:
        self.counts["moved logged"] += moved_anything(logged)
        self.counts["moved replayed"] += moved_anything(again)
        differing = (_record_differences if self.exact else _move_differences)(logged, again)
        if differing:
            lines = record_texts(logged), record_texts(again)
            self.found.append(
                TickDifference(now_s=logged["now_s"], fields=differing, logged=lines[0], replayed=lines[1])
            )


def _refuse_other_rows(row: Row) -> None:
    """StateError for a tick without the fields to compare: an intact line in another format."""
    if row.get("kind") != "tick":
        return
    try:
        _ = (
            moved_anything(row),
            record_texts(row),
            _did(row),
            float(row["spent_ms"]),
            row["in_force"],
            float(row["now_s"]),
        )
    except MALFORMED as error:
        raise StateError(f"decision log: expected a decision record, got {error!r}"[:300]) from None


def moved_anything(row: Row) -> bool:
    """Whether a weight moved or a replica's rotation changed."""
    return bool(row["moves"] or row["readmitted"] or any(one["new"] for one in row["quarantined"]))


def _record_differences(logged: Row, again: Row) -> tuple[str, ...]:
    own = {name: value for name, value in logged.items() if name not in BESIDE}
    return tuple(
        name for name in sorted(own | again) if json_text(own.get(name)) != json_text(again.get(name))
    )


def _move_differences(logged: Row, again: Row) -> tuple[str, ...]:
    return tuple(
        name for name in ("moves", "quarantined", "readmitted") if _did(logged)[name] != _did(again)[name]
    )


def _did(row: Row) -> dict[str, list[Any]]:
    return {"moves": _moves(row), "quarantined": _new(row), "readmitted": sorted(row["readmitted"])}


def _moves(row: Row) -> list[tuple[str, str, float]]:
    return [(m["slice"], m["target"], round(float(m["after"]), 9)) for m in row["moves"]]


def _new(row: Row) -> list[str]:
    return sorted(one["replica"] for one in row["quarantined"] if one["new"])


_PROBES = "probes."


class TelemetryShapes:
    """Expected types and shapes of the arrays of one fleet of ``layout``."""

    def __init__(self, layout: FleetLayout) -> None:
        nothing = TelemetryRecorder(layout, {}).record(0.0, (), {}, NO_ROWS, nothing_probed(layout))
        self._expected = {name: (array.dtype, array.shape) for name, array in _arrays(nothing)}
        self._counts = {"replica": len(layout.replicas), "slice": len(layout.slices)}

    def refuse_others(self, seen: FleetTelemetry) -> None:
        """StateError if an array of ``seen`` has another type or shape, or a probe's replica or slice index
        is out of range.
        """
        probes = seen.probes.replica.shape[1] if seen.probes.replica.ndim == 2 else 0
        for name, array in _arrays(seen):
            kind, shape = self._expected[name]
            if name.startswith(_PROBES):
                shape = (1, probes, *shape[2:])
            if (array.dtype, array.shape) != (kind, shape):
                message = f"expected {kind} {shape}, got {array.dtype} {array.shape}"
                raise StateError(f"telemetry.{name}: {message}; it is of another pool")
        for name, count in self._counts.items():
            found: NDArray[np.int64] = getattr(seen.probes, name)
            if found.size and not (int(found.min()) >= 0 and int(found.max()) < count):
                message = f"expected numbers from 0 to {count - 1}"
                raise StateError(f"telemetry.{_PROBES}{name}: {message}; it is of another pool")


def _arrays(value: Any, prefix: str = "") -> Iterator[tuple[str, NDArray[Any]]]:
    for entry in fields(value):
        found = getattr(value, entry.name)
        if isinstance(found, np.ndarray):
            yield f"{prefix}{entry.name}", found
        else:
            yield from _arrays(found, f"{prefix}{entry.name}.")
