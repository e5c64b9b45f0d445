"""Rules of route policies: a freeze that can be read, and a pinned table that is one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from contracts.documents.route import Freeze, RoutePolicySpec
from contracts.rules.breach import Breach, repeated, under

_SUM_TOLERANCE = 1e-6


def route_breaches(spec: RoutePolicySpec) -> Iterator[Breach]:
    """Broken rules of one route policy, paths from its spec."""
    if spec.freeze is not None:
        yield from under(("freeze",), _freeze(spec.freeze))


def _freeze(freeze: Freeze) -> Iterator[Breach]:
    try:
        datetime.strptime(freeze.until, "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        hint = "write it as 2030-01-31T18:00:00Z"
        yield Breach(path=("until",), expected="an instant in UTC", actual=freeze.until, next_step=hint)
    rows = freeze.table or ()
    yield from repeated([row.slice for row in rows], ("table",), "slice")
    for index, row in enumerate(rows):
        yield from repeated([one.kernel for one in row.weights], ("table", index, "weights"), "kernel")
        total = sum(one.weight for one in row.weights)
        if abs(total - 1.0) > _SUM_TOLERANCE:
            yield Breach(
                path=("table", index, "weights"),
                expected="weights that add up to 1",
                actual=f"{total:g}",
                next_step="give the rest to the kernel that shall carry it",
            )
