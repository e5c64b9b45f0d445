"""Pydantic's findings as ``Problem`` records: expected, actual, where, next step."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from contracts.errors import KeyPath, Problem
from contracts.loading.yaml_positions import PositionedYaml, dotted

#: Error type -> (expected, next step); ``{...}`` are filled from pydantic's context.
_SENTENCES: dict[str, tuple[str, str]] = {
    "missing": ("this key", "add it"),
    "float_type": ("a number", "write a plain number without quotes, e.g. 0.001"),
    "int_type": ("a whole number", "write digits without quotes or a decimal point"),
    "int_from_float": ("a whole number", "write digits without a decimal point"),
    "bool_type": ("true or false", "write true or false without quotes"),
    "string_type": ("text", "put it in quotes"),
    "finite_number": ("a finite number", "write a number within the range of a double"),
    "tuple_type": ("a list", "write one entry per line, each starting with '- '"),
    "model_type": ("a mapping", "write key: value pairs"),
    "model_attributes_type": ("a mapping", "write key: value pairs"),
    "greater_than": ("a value > {gt}", "correct the value or its unit"),
    "greater_than_equal": ("a value >= {ge}", "correct the value or its unit"),
    "less_than": ("a value < {lt}", "correct the value or its unit"),
    "less_than_equal": ("a value <= {le}", "correct the value or its unit"),
    "literal_error": ("{expected}", "choose one of these"),
    "string_pattern_mismatch": ("text matching {pattern}", "use letters, digits and inner dashes"),
    "string_too_short": ("at least {min_length} character(s)", "say it in a few words"),
    "string_too_long": ("at most {max_length} characters", "shorten it"),
    "too_short": ("at least {min_length} entries", "add one, or leave the key out"),
    "too_long": ("at most {max_length} entries", "drop some, or split the document"),
}

#: How patterns of URLs begin; what to write for one without a path, and for one that may have one.
_URL = "^https?://"
_HOST_ALONE = "write http://HOST:PORT without a path: a gateway that adds one needs a route at the root"
_NO_MORE = "write http://HOST:PORT and a path at most, without user, query or fragment"


def problems_from(error: ValidationError, model: type[BaseModel], written: PositionedYaml) -> list[Problem]:
    """One problem per finding, in the order of the file."""
    items = [dict(item) for item in error.errors(include_url=False)]
    found = [_problem(item, model, written) for item in items if not _follows(item, items)]
    return sorted(found, key=lambda problem: (problem.line, problem.path))


def _follows(item: Mapping[str, Any], others: list[dict[str, Any]]) -> bool:
    """True for a list that counts as too short only because some of its entries were refused."""
    loc = item["loc"]
    return item["type"] == "too_short" and any(
        len(other["loc"]) > len(loc) and other["loc"][: len(loc)] == loc for other in others
    )


def _problem(item: Mapping[str, Any], model: type[BaseModel], written: PositionedYaml) -> Problem:
    path: KeyPath = tuple(item["loc"])
    kind = str(item["type"])
    line = written.line_of(path)
    if kind == "extra_forbidden":
        expected, next_step = _known_keys(model, path)
        return Problem(written.file, line, dotted(path), expected, f"the unknown key {path[-1]!r}", next_step)
    expected, next_step = _SENTENCES.get(kind, (str(item["msg"]), "correct the value"))
    limits = item.get("ctx") or {}
    if kind == "string_pattern_mismatch" and limits["pattern"].startswith(_URL):
        next_step = _HOST_ALONE if limits["pattern"].endswith("]+$") else _NO_MORE
    filled = expected.format_map({k: f"{v:g}" if isinstance(v, float) else v for k, v in limits.items()})
    actual = "nothing" if kind == "missing" else _shown(item["input"], kind)
    return Problem(written.file, line, dotted(path), filled, actual, next_step)


def _shown(value: object, kind: str) -> str:
    if kind in ("too_short", "too_long") and isinstance(value, tuple):
        return f"{len(value)} entries"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, tuple):
        return "a list"
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _known_keys(model: type[BaseModel], path: KeyPath) -> tuple[str, str]:
    names = _field_names(model, path[:-1])
    close = difflib.get_close_matches(str(path[-1]), names, n=1)
    next_step = f"did you mean {close[0]!r}?" if close else "remove it, or check its indentation"
    return f"one of {', '.join(names)}", next_step


def _field_names(model: type[BaseModel], path: KeyPath) -> list[str]:
    """Keys of the model that sits at ``path`` below ``model``."""
    current = model
    for step in path:
        if isinstance(step, int):
            continue
        by_key = {field.alias or name: field for name, field in current.model_fields.items()}
        nested = models_in(by_key[step].annotation) if step in by_key else []
        if not nested:
            break
        current = nested[0]
    return [field.alias or name for name, field in current.model_fields.items()]


def models_in(annotation: object) -> list[type[BaseModel]]:
    """Models that ``annotation`` names, on any level of it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]
