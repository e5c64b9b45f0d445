"""What a kernel's answers were like when all was well: limits of their mean surprise, by kernel and slice.

The limits are Wilks's: of ``PAST`` answers the ``EDGE``-th lowest and the ``EDGE``-th highest. Whatever
the law of one answer's surprise, the share of like answers that falls outside is Beta(2 EDGE, PAST + 1 - 2
EDGE): 0.05 on average, and above ``MOST_OUTSIDE`` in fewer than one past in a thousand. So a clause with a
threshold of ``MOST_OUTSIDE`` or more keeps its run length to a false alarm. A past is learned while no clause
is in alarm and is kept in a file, sorted and without any token, so that a restart does not forget it; another
build begins another.
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

#: Answers that a past is made of; of these how many are cut off at either end.
PAST, EDGE = 200, 5
#: Share of like answers outside the limits that no more than one past in a thousand exceeds.
MOST_OUTSIDE = 0.11
_FORMAT = "selvage-surprise-past/1"
#: A file with more is none of ours.
_MOST_CELLS = 10_000


@dataclass(frozen=True, slots=True, order=True)
class BuildOnSlice:
    """The build and slice of a past. fingerprint: of the build, as its servers state it."""

    kernel: str
    fingerprint: str
    slice: str


@dataclass(slots=True)
class SurprisePasts:
    """Surprises in nats by cell, in rising order; a past is complete with ``PAST`` of them."""

    by_cell: dict[BuildOnSlice, list[float]] = field(default_factory=dict)

    def learn(self, cell: BuildOnSlice, surprise_nats: float) -> bool:
        """Take one more into a past that is not complete; whether it is now."""
        past = self.by_cell.setdefault(cell, [])
        if len(past) < PAST:
            insort(past, surprise_nats)
        return len(past) == PAST

    def limits(self, cell: BuildOnSlice) -> tuple[float, float] | None:
        """Lowest and highest surprise that is inside, nats; None while the past is being learned."""
        past = self.by_cell.get(cell, ())
        return (past[EDGE - 1], past[-EDGE]) if len(past) == PAST else None

    def write(self, file: Path) -> None:
        """Keep complete pasts; OSError where the file cannot be written."""
        whole = [
            {"kernel": cell.kernel, "fingerprint": cell.fingerprint, "slice": cell.slice, "nats": past}
            for cell, past in sorted(self.by_cell.items())
            if len(past) == PAST
        ]
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {"format": _FORMAT, "pasts": whole})


def read_pasts(file: Path) -> SurprisePasts:
    """What ``write`` kept; nothing where there is none, or another thing than we write."""
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
