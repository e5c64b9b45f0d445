"""An incident of a live log as a folder that can be attached to a report: ``selvage explain --bundle``.

Its content comes from the decision log and the evidence that the controller kept; no text of users.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, model_validator

from contracts.errors import refusal
from contracts.loading.untrusted import MALFORMED, json_of
from contracts.regular_files import TEXT_BYTES, lines_of, read_regular_text
from live.run.evidence import EVIDENCE, LEFT
from live.run.evidence import FORMAT as EVIDENCE_FORMAT
from scripts.cli.run_reports.decision_log import Tick
from scripts.cli.run_reports.explaining import Explained, log_files
from scripts.output import ready_folder, write_json, write_whole

#: Part of the decision log that belongs to an incident, s before its first and after its last move.
BEFORE_S, AFTER_S = 120.0, 60.0


class _Probe(BaseModel):
    """The failing probe."""

    prompt: int
    slice: str
    values: dict[str, float | None]


class _Seen(BaseModel):
    """Required content of a file of evidence; the replica names a file of the bundle."""

    replica: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=200)]
    at_s: Annotated[float, Field(allow_inf_nan=False)]
    reason: str
    engine: dict[str, Any] = {}
    failing: _Probe | None = None
    reference: list[dict[str, float]] | None = None
    observed: list[dict[str, float]] | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _traces_fit(self) -> Self:
        if self.observed and len(self.reference or ()) != len(self.observed):
            raise ValueError("expected as many positions in reference as in observed")
        return self


def write_bundle(source: Path, out: Path, found: Explained, lines: list[str]) -> list[str]:
    """Write the bundle of what ``found`` explains of the log at ``source``; a line per file.

    ``incident.md`` is the summary as text, ``timeline.json`` tick by tick, ``decisions.jsonl`` has the lines
    of the log as they are chained, ``evidence-REPLICA.json`` the failing probe with both traces and the
    engine. DocumentError if nothing moved and no alarm was raised, or if ``out`` is in use.
    """
    instants = _instants(found)
    if not instants:
        expected = "a tick that moved or condemned something, or an alarm"
        raise refusal(source, expected, "none", "give --at SECOND")
    if out.exists() and any(out.iterdir()):
        raise refusal(out, "a folder that is new or empty", "files in it", "name another folder")
    files = log_files(source)
    span = min(instants) - BEFORE_S, max(instants) + AFTER_S
    kept = _evidence(files[0].parent / EVIDENCE, span)
    ready_folder(out)
    write_json(out / "timeline.json", found.plain(), indent=1)
    write_whole(out / "decisions.jsonl", "".join(f"{line}\n" for line in _within(files, span)))
    for one in kept:
        write_json(out / f"evidence-{one['replica']}.json", one, indent=1)
    write_whole(out / "incident.md", _page(lines, kept))
    return [str(path) for path in sorted(out.iterdir())]


def _instants(found: Explained) -> list[float]:
    """Times of moves; if nothing moved, times at which alarms began and ended, s."""
    moved = [float(tick["now_s"]) for tick in found.ticks]
    alarmed = [float(one["now_s"]) for one in found.passive]
    return moved or [*alarmed, *(instant for one in found.quiet for instant in (one.from_s, one.to_s))]


def _evidence(folder: Path, span: tuple[float, float]) -> list[dict[str, Any]]:
    """Evidence kept within ``span``, by time; of a replica when it was condemned, else when it was left."""
    found: dict[str, dict[str, Any]] = {}
    every = [_read(file) for file in sorted(folder.glob("*.json"))]
    for content in sorted(every, key=lambda one: (str(one["reason"]).startswith(LEFT), float(one["at_s"]))):
        if span[0] <= content["at_s"] <= span[1]:
            found.setdefault(str(content["replica"]), content)
    return sorted(found.values(), key=lambda one: float(one["at_s"]))


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json_of(read_regular_text(file, TEXT_BYTES))
        json.dumps(content, ensure_ascii=False).encode()  # a lone surrogate could not be written again
        if content["format"] == EVIDENCE_FORMAT:
            _Seen.model_validate(content, strict=True)
            return dict(content)
        actual = f"format {content['format']!r}"
    except MALFORMED as error:
        actual = " ".join(str(error).split())[:200]
    raise refusal(file, f"evidence of format {EVIDENCE_FORMAT}", actual, "remove the file")


def _within(files: list[Path], span: tuple[float, float]) -> list[str]:
    """Lines of the log within ``span``, unchanged, and every line of another kind."""
    found = []
    for file in files:
        for number, line in enumerate(lines_of(read_regular_text(file, TEXT_BYTES)), 1):
            try:
                row: Tick = json_of(line) if line.endswith("}") else {}
                inside = bool(row) and (row.get("kind") != "tick" or span[0] <= row["now_s"] <= span[1])
            except MALFORMED as error:
                actual = " ".join(str(error).split())[:200]
                step = "restore the file, or leave it out"
                raise refusal(file, "a line of a decision log", f"line {number}: {actual}", step) from None
            found += [line] if inside else []
    return found


def _page(lines: list[str], kept: list[dict[str, Any]]) -> str:
    """The incident as text."""
    told = ["# Incident", "", "```text", *lines, "```", ""]
    for one in kept:
        told += [f"## {one['replica']}", "", f"At {one['at_s']:.0f} s: {one['reason']}.", ""]
        told += [f"- {name}: {_word(value)}" for name, value in one.get("engine", {}).items()]
        told += _failing(one)
    if not kept:
        told += [
            "No probe's traces were kept: an older version wrote the log, or no replica was condemned.",
            "",
        ]
    return "\n".join(told)


def _failing(one: dict[str, Any]) -> list[str]:
    """The failing probe, and the difference of its traces."""
    probe = one.get("failing")
    lines = [""]
    if probe:
        values = ", ".join(f"{name} {_word(value)}" for name, value in probe["values"].items())
        lines += [f"Failing probe: prompt {probe['prompt']} of {probe['slice']}: {values}.", ""]
    if one.get("observed"):
        pairs = zip(one["reference"], one["observed"], strict=True)
        worst = max(enumerate(pairs), key=lambda pair: _apart(*pair[1]))
        lines += [
            f"Asked again, the traces of {len(one['observed'])} positions (`evidence-{one['replica']}.json`) "
            f"are furthest apart at position {worst[0]}, by {_apart(*worst[1]):.4g} nats on one token.",
            "",
        ]
    return lines + ([f"{one['note']}.", ""] if one.get("note") else [])


def _apart(right: dict[str, float], seen: dict[str, float]) -> float:
    """Largest difference of the log-probabilities of a token that both rows have; 0 without any."""
    return max((abs(right[token] - seen[token]) for token in right.keys() & seen.keys()), default=0.0)


def _word(value: object) -> str:
    if isinstance(value, list):
        return f"`{' '.join(map(str, value))}`"
    return f"{value:.4g}" if isinstance(value, float) else "not known" if value is None else str(value)
