"""Several inputs of one evaluation: the samples of a profile and any number of logs, in one verdict."""

from __future__ import annotations

from collections.abc import Sequence

from contracts.assess.observations import LOGGED, Observations
from contracts.loading.files import canonical_sha256


def joined(parts: Sequence[Observations]) -> Observations:
    """All observations of ``parts``, at least one, in the given order.

    Raises ValueError where a file stands twice, and where two files of samples hold the same column of the
    same slice: then it is not one kernel that is judged.
    """
    if len(parts) == 1:
        return parts[0]
    files = [part.sha256 for part in parts]
    if len(set(files)) < len(files):
        raise ValueError("the same file twice: its observations would count double")
    measured = [part for part in parts if part.condition != LOGGED]
    _refuse_overlap(measured)
    first = measured[0] if measured else parts[0]
    return Observations(
        sha256=first.sha256 if measured else canonical_sha256(files),
        condition=first.condition,
        split=first.split,
        columns=tuple(column for part in parts for column in part.columns),
        several=tuple(one for part in parts for one in part.parts),
    )


def _refuse_overlap(measured: Sequence[Observations]) -> None:
    seen: set[tuple[str, str]] = set()
    for part in measured:
        cells = {(entry.slice, entry.column) for entry in part.columns}
        if twice := sorted(seen & cells):
            place, column = twice[0]
            raise ValueError(f"{column} of slice {place} is measured in two files of samples")
        seen |= cells
