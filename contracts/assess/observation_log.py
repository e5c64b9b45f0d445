"""Logs of observations, as observations to be judged.

A log is JSON lines, one observation each (``docs/samples.md``)::

    {"slice": "code", "column": "kl_mean@full_vocab", "value": 0.0012}
    {"slice": "code", "column": "latency_ms", "value": 48.2}
    {"slice": "prose", "judge": "refusal", "reference": "Sure.", "candidate": "I can't do that."}
    {"slice": "json", "judge": "json", "reference": "{}", "candidate": "{"}
    {"slice": "prose", "judge": "calibration", "reference": [0.9, 1], "candidate": [0.8, 0]}

Unknown keys, unknown columns, infinities, NaN and values that a column cannot have are refused with the line
they stand on.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts.assess.observations import (
    ALL_SPLITS,
    CALIBRATION_COLUMN,
    EVIDENCE_COLUMNS,
    JUDGES,
    LOGGED,
    Observations,
    ObservedColumn,
)
from contracts.errors import DocumentError, Problem
from contracts.loading.untrusted import json_line_problem, json_of, unique_keys
from contracts.metrics import COLUMN_NAMES, METRICS
from contracts.metrics.columns import domain_of
from contracts.metrics.statistical import judged_difference
from contracts.regular_files import TEXT_BYTES, lines_of, read_regular, text_of

Floats = NDArray[np.float64]

#: After this many bad lines of a log no more are listed.
_MOST_PROBLEMS = 1000


def known_columns() -> dict[str, bool]:
    """Columns that a registered metric reads, that a profile holds, or that an assumption is checked on, and
    whether an observation of it is 0 or 1 by definition.
    """
    known = dict.fromkeys([*COLUMN_NAMES, *sorted(EVIDENCE_COLUMNS)], False)
    return known | {name: spec.indicator for spec in METRICS.values() for name in spec.columns}


def load_log(path: Path) -> Observations:
    """Observations of a JSON-lines log; DocumentError lists the bad lines, or the first of very many."""
    content = read_regular(path, TEXT_BYTES)
    text = text_of(content, path)
    found: dict[tuple[str, str], list[Floats]] = {}
    problems: list[tuple[int, str, str]] = []
    known = known_columns()
    for number, line in enumerate(lines_of(text), start=1):
        if line.strip():
            _collect(line, number, known, found, problems)
        if len(problems) >= _MOST_PROBLEMS:
            break
    if problems or not found:
        raise _bad(path, problems or [(0, "at least one observation", "an empty file")])
    columns = tuple(
        ObservedColumn(slice=name, column=column, values=np.array(values))
        for (name, column), values in found.items()
    )
    return Observations(
        sha256=hashlib.sha256(content).hexdigest(), condition=LOGGED, split=ALL_SPLITS, columns=columns
    )


def _collect(
    line: str,
    number: int,
    known: Mapping[str, bool],
    found: dict[tuple[str, str], list[Floats]],
    problems: list[tuple[int, str, str]],
) -> None:
    try:
        column, slice_name, value = _observation(json_of(line, unique_keys), known)
    except (ValueError, OverflowError, RecursionError) as error:
        problems.append((number, "one observation as a JSON object", json_line_problem(error)))
        return
    found.setdefault((slice_name, column), []).append(value)


def _observation(record: object, known: Mapping[str, bool]) -> tuple[str, str, Floats]:
    """(column, slice, value) of one log line; ValueError for what is wrong with it."""
    if not isinstance(record, dict):
        raise ValueError("not an object")
    place = _name(record, "slice")
    if "judge" in record:
        return _judged(record, place)
    _only(record, {"slice", "column", "value"})
    value, column = _number(record.get("value")), _column(record, known)
    domain = domain_of(column)
    if not domain.holds(value):
        raise ValueError(f"{column} is {domain}, got {value:g}")
    if known[column] and value not in (0.0, 1.0):
        raise ValueError(f"{column} is 0 or 1, got {value:g}")
    return column, place, np.array(value)


def _column(record: Mapping[str, object], known: Mapping[str, bool]) -> str:
    """The column of a line; one that no metric reads is refused, because it would be ignored silently."""
    name = _name(record, "column")
    if name not in known:
        close = get_close_matches(name, known, n=1)
        raise ValueError(f"unknown column {name!r:.80}" + (f"; {close[0]!r} is meant?" if close else ""))
    if name == CALIBRATION_COLUMN:
        raise ValueError(f"{name} is no number of one observation; log it by judge: calibration")
    return name


def _name(record: Mapping[str, object], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError(f"no printable text field {key!r}")
    return value


def _judged(record: Mapping[str, object], place: str) -> tuple[str, str, Floats]:
    _only(record, {"slice", "judge", "reference", "candidate"})
    old, new = record.get("reference"), record.get("candidate")
    if record["judge"] == "calibration":
        return CALIBRATION_COLUMN, place, np.array([*_calibration(old), *_calibration(new)])
    for name, column, judge in JUDGES:
        if record["judge"] == name:
            if not isinstance(old, str) or not isinstance(new, str):
                raise ValueError("reference and candidate must be texts")
            return column, place, judged_difference([old], [new], judge)[0]
    raise ValueError(f"unknown judge {record['judge']!r}; there are refusal, json, calibration")


def _calibration(pair: object) -> tuple[float, float]:
    if not isinstance(pair, list) or len(pair) != 2:
        raise ValueError("calibration needs [confidence, correct]")
    confidence, correct = _number(pair[0]), float(_number(pair[1]))
    if not 0.0 <= confidence <= 1.0 or correct not in (0.0, 1.0):
        raise ValueError(f"confidence lies in 0..1 and correct is 0 or 1, got {pair}")
    return confidence, correct


def _only(record: Mapping[str, object], known: set[str]) -> None:
    strangers = sorted(set(record) - known)
    if strangers:
        raise ValueError(f"unknown keys {', '.join(strangers)}; known: {', '.join(sorted(known))}")


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"a finite number is needed, got {value!r}")
    return float(value)


def _bad(path: Path, problems: list[tuple[int, str, str]]) -> DocumentError:
    hint = "see docs/samples.md for the format"
    return DocumentError(
        [Problem(str(path), line, "", expected, actual, hint) for line, expected, actual in problems[:20]]
    )
