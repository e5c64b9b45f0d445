"""The decision log of a live controller: every turn with the telemetry it was decided on, as chained lines.

Kinds of lines:

- ``start``: the documents and the state that a controller began with.
- ``tick``: a decision record, as ``selvage simulate --out`` writes it too, with the telemetry, whether the
  plan was in force, and the time that deciding took.
- ``note``: the error of a port when nothing could be decided.
- ``promotion``: stage or verdict of a candidate kernel, after the tick that led to it.
- ``passive``: an alarm raised without probes, which moves nothing, after the tick that saw it.
- ``scrapes``: a server whose metrics report less than they could, and why.

``selvage explain`` reads the log; ``selvage replay`` decides it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contracts.errors import refusal
from contracts.loading.files import GENESIS
from controller.explain.tick import explain, record_json
from controller.options import ControllerSetup
from controller.state import ControllerState
from controller.state_json import state_to_json
from live.control.chain import PASSIVE, SCRAPES, ChainWriter, read_chain
from live.control.loop import Turn
from live.control.telemetry_json import telemetry_to_json
from live.observe.passive import PassiveAlarm, PassiveWatch

if TYPE_CHECKING:  # reading a log must not import the metrics readers
    from live.observe.scrape_notes import ScrapeNote, ScrapeWatch

FORMAT = 1
#: Subfolder of a fleet's folder with the controller's state, its log and the reference answers.
CONTROL = "control"
#: A log file is closed at about this size, and the next one is begun.
SEGMENT_BYTES = 48 * 2**20
#: Fields of a ``tick`` line that are not part of the decision record.
BESIDE = (
    "kind",
    "executed",
    "in_force",
    "seed",
    "spent_ms",
    "telemetry",
    "note",
    "reset",
    "healing",
    "previous",
    "sha256",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What a controller started with. documents: plain values from which a replay rebuilds the set-up."""

    setup: ControllerSetup
    state: ControllerState | None
    documents: Mapping[str, Any]
    code_version: str


class DecisionLog:
    """``TurnWatcher`` that appends to the newest file of ``folder``, and begins another when it is full."""

    def __init__(self, folder: Path, beginning: Beginning, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.folder, self._beginning = folder, beginning
        self.segment_bytes = segment_bytes
        """Size at which the file is closed and the next one begun; may be changed at any time."""
        folder.mkdir(parents=True, exist_ok=True)
        found = segments(folder)
        self._number = int(found[-1].stem.rpartition("-")[2]) if found else 1
        self._writer = ChainWriter(self._path(self._number), _end_of(found[:-1]))
        self.repaired_bytes = self._writer.repaired_bytes
        self._last_note = ""
        self._missing: dict[str, Any] = {}
        self._begin(beginning.state, begins=True)

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def turn(self, turn: Turn) -> None:
        """Append ``turn``. Raises OSError if it cannot be written; the chain stays intact.

        After a failure, the next line states which turns are missing and the state from which the log
        continues.
        """
        if turn.decision is None or turn.telemetry is None:
            self._note(turn)
            return
        try:
            self._decided(turn)
        except OSError:
            self.missed(turn)
            raise

    def missed(self, turn: Turn) -> None:
        """Note that ``turn`` is missing from the log; the next line states it."""
        if turn.decision is not None:
            first = self._missing or {"from_s": turn.at_s, "turns": 0}
            self._missing = {**first, "to_s": turn.at_s, "turns": first["turns"] + 1}

    def _decided(self, turn: Turn) -> None:
        assert turn.decision is not None
        if self._writer.size >= self.segment_bytes:
            self._next(turn.before)
        elif self._missing:
            self._begin(turn.before)
        self._writer.append(tick_row(turn, self._beginning.setup), durable=bool(turn.decision.moved[0]))
        self._last_note = ""

    def promoted(self, change: Mapping[str, Any]) -> None:
        """Append a change of a promotion's stage or verdict. Raises OSError if it cannot be written."""
        self._writer.append({**change, "kind": "promotion"}, durable=True)

    def alarmed(self, alarm: PassiveAlarm, now_s: float) -> None:
        """Append an alarm that began or ended. Raises OSError if it cannot be written."""
        self._writer.append({"kind": PASSIVE, "now_s": now_s, **asdict(alarm)}, durable=alarm.began)

    def noted(self, note: ScrapeNote, now_s: float) -> None:
        """Append an oddity of scrapes that began or ended. Raises OSError if it cannot be written."""
        self._writer.append({"kind": SCRAPES, "now_s": now_s, **asdict(note)})

    def _note(self, turn: Turn) -> None:
        """A failure that persists is noted once."""
        if turn.error != self._last_note:
            self._writer.append({"kind": "note", "now_s": turn.at_s, "note": turn.error})
            self._last_note = turn.error

    def _next(self, state: ControllerState) -> None:
        last = self._writer.last_sha256
        writer = ChainWriter(self._path(self._number + 1), last)
        self._writer.close()
        self._writer, self._number = writer, self._number + 1
        self._begin(state)

    def _begin(self, state: ControllerState | None, *, begins: bool = False) -> None:
        """begins: the controller starts here, so passive alarms of an earlier run are unknown to it."""
        setup = self._beginning.setup
        row = {
            "kind": "start",
            "begins": begins,
            "format": FORMAT,
            "code_version": self._beginning.code_version,
            "documents": dict(self._beginning.documents),
            "policy_id": setup.policy.policy_id,
            "contract_sha256": setup.contract.sha256,
            "state": None if state is None else json.loads(state_to_json(state, setup)),
        }
        self._writer.append(row | ({"missing": self._missing} if self._missing else {}), durable=True)
        self._missing = {}

    def _path(self, number: int) -> Path:
        return self.folder / f"decisions-{number:06d}.jsonl"


@dataclass(frozen=True, slots=True)
class PassiveJournal:
    """``TurnWatcher`` that logs passive alarms and oddities of scrapes as they begin and end.

    A change that could not be written is tried again.
    """

    log: DecisionLog
    watch: PassiveWatch
    scrapes: ScrapeWatch | None = None

    def turn(self, turn: Turn) -> None:
        """Append what changed since the last turn. Raises OSError if it cannot be written."""
        for change in self.watch.changes():
            self.log.alarmed(change, turn.at_s)
            self.watch.drop(1)
        if self.scrapes is not None:
            for note in self.scrapes.changes():
                self.log.noted(note, turn.at_s)
                self.scrapes.drop(1)


def tick_row(turn: Turn, setup: ControllerSetup) -> dict[str, Any]:
    """A turn with a decision, as a row of the log."""
    assert turn.decision is not None
    assert turn.telemetry is not None
    return {
        **json.loads(record_json(explain(turn.before, turn.after, turn.decision, setup))),
        "kind": "tick",
        "executed": turn.executed,
        "in_force": turn.in_force,
        "seed": 0,
        "spent_ms": turn.spent_ms,
        "reset": list(turn.reset),
        "healing": list(turn.healing),
        "note": turn.error,
        "telemetry": telemetry_to_json(turn.telemetry),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLine:
    """One line about a turn, and the slice, kernel and replica that it is about; "" if none."""

    text: str
    slice: str = ""
    kernel: str = ""
    replica: str = ""


def record_lines(row: Mapping[str, Any]) -> tuple[JournalLine, ...]:
    """The actions of a decision record, one line each."""
    moved = [
        JournalLine(
            text=f"{m['slice']}: {m['target']} {m['before']:.2f} -> {m['after']:.2f}",
            slice=m["slice"],
            kernel=m["target"],
        )
        for m in row["moves"]
    ]
    out = [
        JournalLine(text=f"{one['replica']} quarantined: {one['reason']}", replica=one["replica"])
        for one in row["quarantined"]
        if one["new"]
    ]
    back = [JournalLine(text=f"{name} back in rotation", replica=name) for name in row["readmitted"]]
    return (*moved, *out, *back)


def record_texts(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts of ``record_lines``."""
    return tuple(one.text for one in record_lines(row))


def turn_lines(turn: Turn, setup: ControllerSetup) -> tuple[JournalLine, ...]:
    """What a turn moved, or would have moved if in force, with reasons; empty if it moved nothing."""
    if turn.decision is None:
        return ()
    row = json.loads(record_json(explain(turn.before, turn.after, turn.decision, setup)))
    reasons = dict.fromkeys(reason for move in row["moves"] for reason in move["because"])
    others = (*(f"  because: {reason}" for reason in reasons), *turn.healing)
    return (*record_lines(row), *(JournalLine(text=text) for text in others))


def turn_texts(turn: Turn, setup: ControllerSetup) -> tuple[str, ...]:
    """The texts of ``turn_lines``."""
    return tuple(one.text for one in turn_lines(turn, setup))


def code_version() -> str:
    """Version of this build, for the first line of a log."""
    try:
        return version("selvage-fleet")
    except PackageNotFoundError:
        return "unknown"


def segments(folder: Path) -> list[Path]:
    """Files of the log in ``folder``, oldest first."""
    return sorted(folder.glob("decisions-[0-9][0-9][0-9][0-9][0-9][0-9].jsonl"))


def read_log(place: Path) -> list[dict[str, Any]]:
    """Every row of the log at ``place``, a folder or a single file; the whole hash chain is checked.

    A torn last line is dropped. Raises DocumentError for an altered line, or if there is no log.
    """
    files = segments(place) if place.is_dir() else [place]
    rows: list[dict[str, Any]] = []
    previous: str | None = None
    for file in files:
        found = read_chain(file, previous)
        rows += found.rows
        previous = found.last_sha256 if found.rows else previous
    if not rows or rows[0].get("kind") != "start" or rows[0].get("format") != FORMAT:
        expected = f"a decision log of format {FORMAT}, beginning with a line of kind start"
        actual = "no line" if not rows else f"kind {rows[0].get('kind')!r}, format {rows[0].get('format')!r}"
        hint = "give what `selvage run` wrote"
        raise refusal(place, expected, actual, hint, line=1)
    return rows


def _end_of(files: list[Path]) -> str:
    """Hash that the first line of the next file continues from."""
    return read_chain(files[-1]).last_sha256 if files else GENESIS
