"""Several observed inputs together: joined in one evaluation, and the estimator that all of them share."""

from __future__ import annotations

from collections.abc import Sequence

from contracts.assess.observations import LOGGED, Observations
from contracts.documents.contract import Estimator
from contracts.loading.files import canonical_sha256
from contracts.metrics import metric
from contracts.rules.estimators import ESTIMATORS


def join_observations(parts: Sequence[Observations]) -> Observations:
    """All observations of ``parts``, at least one, in the given order.

    Raises ValueError where a file is given twice, and where two files of samples hold the same column of the
    same slice: they would be samples of more than one kernel.
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
        unreadable=tuple(one for part in parts for one in part.unreadable),
    )


def _refuse_overlap(measured: Sequence[Observations]) -> None:
    seen: set[tuple[str, str]] = set()
    for part in measured:
        cells = {(entry.slice, entry.column) for entry in part.columns}
        if twice := sorted(seen & cells):
            place, column = twice[0]
            raise ValueError(f"{column} of slice {place} is measured in two files of samples")
        seen |= cells


def shared_estimator(seen: Sequence[tuple[str, Observations]], name: str) -> Estimator | None:
    """The most informative estimator of ``name`` that every kernel was measured by; None for none."""
    spec = metric(name)
    return next(
        (
            one
            for one in ESTIMATORS
            if one in spec.estimators
            and all(spec.column(one) in observations.column_names for _, observations in seen)
        ),
        None,
    )


def lower_bound_note(estimator: str) -> str:
    """The note for the reader on an estimator that is not exact."""
    if estimator != "top_k":
        return ""
    return (
        " Measured by the most probable tokens alone: a lower bound, of the healthy and of the faulty alike."
    )
