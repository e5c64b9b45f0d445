"""Reading decision logs: every line is checked for the fields that an explanation needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from contracts.errors import DocumentError, refusal
from contracts.loading.untrusted import json_of
from contracts.regular_files import TEXT_BYTES, lines_of, open_regular, read_regular_text
from controller.shield.records import STAGES
from live.control.chain import PASSIVE, SCRAPES, MissingRecords, missing_records, read_chain

#: A decision record in a log.
Tick = dict[str, Any]


class _Read(BaseModel):
    """Required fields of a record; other fields are kept."""

    model_config = ConfigDict(extra="ignore", strict=True)


class _Move(_Read):
    slice: str
    target: str
    before: float
    after: float
    proposed: float
    because: list[str] = Field(default=["not logged"], min_length=1)
    baseline: float | None = None


class _Quarantined(_Read):
    replica: str
    reason: str
    new: bool


class _Step(_Read):
    slice: str
    reasons: list[str]
    sizes: Annotated[list[float], Field(min_length=len(STAGES), max_length=len(STAGES))]


class _WhatIf(_Read):
    slice: str
    target: str
    baseline: float


class _Evidence(_Read):
    clause_id: str
    kernel: str
    slice: str
    estimate: float | None
    limit: float | None
    observations: float


class _Reading(_Read):
    metric: str
    value: float | None
    limit: float | None


class _Passive(_Read):
    now_s: float
    replica: str
    signal: str
    unit: str
    began: bool
    recent: float
    usual: float
    limit: float
    observations: int
    evidence_nats: float
    threshold_nats: float


class _Scrapes(_Read):
    now_s: float
    replica: str
    what: str
    began: bool
    told: str


class _Line(_Read):
    """One line of the log."""

    now_s: float
    policy_id: str
    plan_version: int
    moves: list[_Move]
    quarantined: list[_Quarantined]
    evidence: list[_Evidence]
    seed: int = 0
    readmitted: list[str] = []
    shield: list[_Step] = []
    what_if: list[_WhatIf] = []
    readings: list[_Reading] = []
    demoted: bool = False
    demotion_reason: str = ""


def read_decisions(file: Path) -> list[Tick]:
    """The records of the log ``file``; DocumentError with the line of the first invalid one.

    A live controller's log is checked for its chain; its lines of other kinds are left out.
    """
    return list(read_log_contents([file]).ticks)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContents:
    """Content of a log: its records, alarms of passive signals, anomalies of scrapes, and what is missing;
    only a live log has more than records.
    """

    ticks: tuple[Tick, ...]
    passive: tuple[Tick, ...] = ()
    scrapes: tuple[Tick, ...] = ()
    missing: tuple[MissingRecords, ...] = ()


def read_log_contents(files: Sequence[Path]) -> LogContents:
    """The log in ``files``, oldest first; DocumentError as ``read_decisions``."""
    ticks: list[Tick] = []
    passive: list[Tick] = []
    scrapes: list[Tick] = []
    rows: list[Tick] = []
    for file in files:
        if not _is_chained(file):
            lines = enumerate(lines_of(read_regular_text(file, TEXT_BYTES)), 1)
            ticks += [_record(text, file, number) for number, text in lines if text.strip()]
            continue
        own = read_chain(file).rows
        for number, row in enumerate(own, 1):
            if row.get("kind") == "tick":
                ticks.append(_checked(row, file, number))
            elif row.get("kind") == PASSIVE:
                passive.append(_beside(_Passive, row, file, number))
            elif row.get("kind") == SCRAPES:
                scrapes.append(_beside(_Scrapes, row, file, number))
            elif row.get("kind") == "start" and row.get("begins") is True and ticks:
                passive += _forgotten(passive, "signal", ticks[-1]["now_s"])
                scrapes += _forgotten(scrapes, "what", ticks[-1]["now_s"])
        rows += own
    return LogContents(
        ticks=tuple(ticks), passive=tuple(passive), scrapes=tuple(scrapes), missing=missing_records(rows)
    )


def _forgotten(told: Sequence[Tick], name: str, now_s: float) -> list[Tick]:
    """End events for the open events of ``told``, by replica and ``name``, when a controller started without
    memory; the last tick before that was at ``now_s``.
    """
    newest = {(one["replica"], one[name]): one for one in told}
    why = "known no more: the controller began anew"
    return [{**one, "began": False, "now_s": now_s, "why": why} for one in newest.values() if one["began"]]


def _beside(model: type[_Read], row: Tick, file: Path, number: int) -> Tick:
    try:
        model.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise log_refusal(
            file, number, f"a line of kind {row.get('kind')}", f"{first['loc']}: {first['msg']}"
        ) from None
    return row


def _is_chained(file: Path) -> bool:
    """Whether ``file`` is of a live controller: its lines end with their hash."""
    with open_regular(file) as stream:
        return b'"sha256"' in stream.readline(TEXT_BYTES)[-100:]


def _record(text: str, file: Path, number: int) -> Tick:
    try:
        record: Tick = json_of(text)
    except (ValueError, RecursionError) as error:
        raise log_refusal(file, number, "one JSON object per line", f"{error}"[:200]) from None
    return _checked(record, file, number)


def _checked(record: Tick, file: Path, number: int) -> Tick:
    try:
        line = _Line.model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise log_refusal(
            file, number, "a decision record", f"{where}: {first['msg']}".lstrip(": ")
        ) from None
    if not math.isfinite(line.now_s):
        raise log_refusal(file, number, "a time in seconds", f"now_s {line.now_s}")
    return record


def log_refusal(file: Path, line: int, expected: str, actual: str) -> DocumentError:
    """An error about ``file``."""
    hint = "give a log that `selvage simulate --out` or `selvage run` wrote, or a scenario"
    return refusal(file, expected, actual, hint, line=line)
