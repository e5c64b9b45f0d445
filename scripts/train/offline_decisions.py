"""Decision logs of live servers and of clusters as transitions: the recorded telemetry, decided once more.

A log holds observations and decisions, not the inputs of a learned policy; so each start of its controller
is replayed under the documents that it names, and recorded as a simulated episode is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contracts.errors import DocumentError, StateError, refusal
from contracts.loading.untrusted import MALFORMED
from controller.options import ControllerSetup
from live.control.journal import read_log
from live.control.replay import replay
from live.run.options import setup_again
from policies.offline.transitions import Transitions, agreeing
from scripts.train.offline_logs import TransitionRecorder, chooser_for

Row = dict[str, Any]
#: Fewer ticks than this have no outcome to learn from.
_LEAST_TICKS = 2


def decided(place: Path) -> list[Transitions]:
    """An episode for each start of the controller in the log ``place`` that lived for two ticks or more.

    Raises DocumentError if the log is altered, was written under documents that are gone, or is decided
    differently by this version: nothing is learned from inputs that were not seen then.
    """
    starts = list(_starts(read_log(place)))
    found = [_episode(place, number, rows) for number, rows in enumerate(starts, 1)]
    kept = [(f"{place}, start {number}", one) for number, one in enumerate(found, 1) if one is not None]
    if not kept:
        raise _refusal(place, f"a start with {_LEAST_TICKS} ticks or more", "none", "let it run for longer")
    return agreeing(kept)


def _starts(rows: list[Row]) -> Iterator[list[Row]]:
    """Rows from each start to the next."""
    own: list[Row] = []
    for row in rows:
        if row.get("kind") == "start" and own:
            yield own
            own = []
        own.append(row)
    if own:
        yield own


def _episode(place: Path, number: int, rows: list[Row]) -> Transitions | None:
    """The episode of one start; None if it has no outcome."""
    if sum(row.get("kind") == "tick" for row in rows) < _LEAST_TICKS:
        return None
    return episode_of(place, number, rows, setup_again(rows[0]["documents"]).setup)


def episode_of(place: Path, number: int, rows: list[Row], setup: ControllerSetup) -> Transitions:
    """The episode of the start ``number`` in ``place``, which decided two ticks or more under ``setup``.

    Raises DocumentError as ``decided``.
    """
    recorder = TransitionRecorder(setup=setup, chooser=chooser_for(setup.fleet), world="live")
    try:
        again = replay(rows, setup, recorder.take)
        if not again.identical:
            version = rows[0].get("code_version")
            hint = f"see `selvage replay`; the log is of version {version}, which decides it as it was"
            actual = f"{len(again.differences)} of {again.ticks} ticks that are decided otherwise"
            raise _refusal(place, "a log that this version decides as it was", actual, hint)
        (found,) = recorder.logs(f"{place.name}-{number}", [-1])
    except (StateError, *MALFORMED) as error:
        actual = f"{error!r}"[:300]
        raise _refusal(place, "a whole decision log", actual, "give what `selvage run` wrote") from None
    return found


def _refusal(place: Path, expected: str, actual: str, hint: str) -> DocumentError:
    return refusal(place, expected, actual, hint, path="decision log")
