"""Measures of one episode as JSON, and back: null stands for NaN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter

from contracts.loading.files import plain
from contracts.scoring.measures import EpisodeMeasures

_MEASURES = TypeAdapter(EpisodeMeasures)
_ABSENT = ("incident",)
"""Fields whose null says that there is none."""


def measures_plain(measures: EpisodeMeasures) -> dict[str, Any]:
    """``measures`` as JSON holds them."""
    found: dict[str, Any] = plain(asdict(measures))
    return found


def measures_of(found: Mapping[str, Any]) -> EpisodeMeasures:
    """What ``measures_plain`` wrote; ValueError for anything else."""
    return _MEASURES.validate_python(_known(dict(found)))


def _known(value: Any, name: str = "") -> Any:
    """``value`` with NaN for null."""
    if isinstance(value, dict):
        return {key: _known(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [_known(inner) for inner in value]
    return float("nan") if value is None and name not in _ABSENT else value
