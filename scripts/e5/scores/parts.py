"""Reading the episodes that a run of E5 keeps in ``OUT/parts``; damaged files are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from contracts.errors import DocumentError, refusal
from contracts.loading.untrusted import json_of
from contracts.regular_files import TEXT_BYTES, read_regular_text

Number = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[Number, Field(ge=0.0)]


class _Read(BaseModel):
    """Required fields of a part; a run stores more."""

    model_config = ConfigDict(extra="allow", strict=True)


class _Incident(_Read):
    mttr_s: Share | None = None
    infeasible: bool = False


class _Quality(_Read):
    preservation: Number | None = None
    loss: Number | None = None


class _Switches(_Read):
    false_switches: Share
    false_switches_in_rotation: Share
    slice_months: Annotated[Number, Field(gt=0.0)]


class _Service(_Read):
    failed_ratio: Share | None = None
    probe_tokens: Share | None = None


class _Episode(_Read):
    policy: str
    scenario: str
    seed: int
    incident: _Incident | None
    quality: _Quality
    switches: _Switches
    service: _Service


_EPISODES = TypeAdapter(list[_Episode])


def read_episodes(file: Path) -> list[dict[str, Any]]:
    """Measures of the episodes in one part, unchanged; DocumentError if there are none."""
    text = read_regular_text(file, TEXT_BYTES)
    try:
        rows: list[dict[str, Any]] = json_of(text)
        _EPISODES.validate_python(rows)
    except ValidationError as error:
        first = error.errors()[0]
        raise _refusal(file, ".".join(str(part) for part in first["loc"]), first["msg"]) from None
    except (ValueError, RecursionError) as error:
        raise _refusal(file, "", f"{error}"[:200]) from None
    return rows


def _refusal(file: Path, place: str, found: str) -> DocumentError:
    expected = "episodes of `selvage e5`"
    return refusal(file, expected, found, "delete it and run selvage e5 again", path=place)
