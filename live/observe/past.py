"""Usual surprise of a kernel's answers while it was healthy: limits of their mean surprise by kernel and
slice.

The limits are Wilks's: the ``EDGE``-th lowest and ``EDGE``-th highest of ``PAST`` answers. Whatever the
distribution of one answer's surprise, the share of like answers outside the limits has the distribution
Beta(2 EDGE, PAST + 1 - 2 EDGE): 0.05 on average, and above ``MOST_OUTSIDE`` in fewer than one past in a
thousand. A clause with a threshold of at least ``MOST_OUTSIDE`` therefore keeps its ARL0. A past is learned
while no clause is in alarm. It is kept in a file, sorted and without tokens, so that it survives a restart.
Another build begins another past.
"""

from __future__ import annotations

import json
import math
from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contracts.errors import DocumentError
from contracts.loading.files import write_json
from contracts.loading.untrusted import MALFORMED
from contracts.regular_files import TEXT_BYTES, read_regular_text

#: Number of answers in a past, and rank of the limits from either end.
PAST, EDGE = 200, 5
#: Share of like answers outside the limits that fewer than one past in a thousand exceeds.
MOST_OUTSIDE = 0.11
_FORMAT = "selvage-surprise-past/1"
#: A file with more entries was not written by us.
_MOST_CELLS = 10_000


@dataclass(frozen=True, slots=True, order=True)
class BuildOnSlice:
    """The build and slice of a past. fingerprint: of the build, as its servers report it."""

    kernel: str
    fingerprint: str
    slice: str


@dataclass(slots=True)
class SurprisePasts:
    """Sorted surprises in nats by cell; a past is complete with ``PAST`` surprises."""

    by_cell: dict[BuildOnSlice, list[float]] = field(default_factory=dict)

    def learn(self, cell: BuildOnSlice, surprise_nats: float) -> bool:
        """Add a surprise to a past unless it is complete; returns whether it is complete now."""
        past = self.by_cell.setdefault(cell, [])
        if len(past) < PAST:
            insort(past, surprise_nats)
        return len(past) == PAST

    def limits(self, cell: BuildOnSlice) -> tuple[float, float] | None:
        """Lowest and highest surprise within the limits, nats; None while the past is being learned."""
        past = self.by_cell.get(cell, ())
        return (past[EDGE - 1], past[-EDGE]) if len(past) == PAST else None

    def write(self, file: Path) -> None:
        """Write the complete pasts; OSError if the file cannot be written."""
        whole = [
            {"kernel": cell.kernel, "fingerprint": cell.fingerprint, "slice": cell.slice, "nats": past}
            for cell, past in sorted(self.by_cell.items())
            if len(past) == PAST
        ]
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {"format": _FORMAT, "pasts": whole})


def read_pasts(file: Path) -> SurprisePasts:
    """The pasts that ``write`` kept; none if there is no file, or its content is not valid."""
    try:
        told: Any = json.loads(read_regular_text(file, TEXT_BYTES))
        if told["format"] != _FORMAT or len(told["pasts"]) > _MOST_CELLS:
            return SurprisePasts()
        return SurprisePasts(by_cell=dict(_past(one) for one in told["pasts"]))
    except (OSError, DocumentError, *MALFORMED):
        return SurprisePasts()


def _past(told: Mapping[str, Any]) -> tuple[BuildOnSlice, list[float]]:
    names = [told[name] for name in ("kernel", "fingerprint", "slice")]
    nats = sorted(float(one) for one in told["nats"])
    if not all(isinstance(one, str) for one in names) or len(nats) != PAST:
        raise ValueError("no past")
    if not all(math.isfinite(one) and one >= 0.0 for one in nats):
        raise ValueError("no surprises")
    return BuildOnSlice(*names), nats
