"""Rules of drills: what joins their faults, guards, load and times."""

from __future__ import annotations

import math
from collections.abc import Iterator

from contracts.documents.drill import DrillLoad, DrillSpec
from contracts.errors import KeyPath
from contracts.rules.breach import Breach, only_block, repeated
from contracts.rules.scenario import fault_breaches


def drill_breaches(spec: DrillSpec) -> Iterator[Breach]:
    """Broken rules of one drill, paths from its spec."""
    yield from repeated([fault.name for fault in spec.faults], ("faults",), "name")
    for index, fault in enumerate(spec.faults):
        yield from fault_breaches(fault, ("faults", index), None, spec.time_to_live_s)
    for key, guards in (("steady_state", spec.steady_state), ("abort_when", spec.abort_when)):
        yield from repeated([guard.name for guard in guards], (key,), "name")
    if spec.load is not None:
        yield from _load(spec.load, ("load",))


def _load(load: DrillLoad, path: KeyPath) -> Iterator[Breach]:
    kind = "trace_uri" if load.arrivals == "trace" else load.arrivals
    yield from only_block(kind, {"trace_uri": load.trace_uri}, path, "arrivals")
    if load.slice_mix is None:
        return
    yield from repeated([part.slice for part in load.slice_mix], (*path, "slice_mix"), "slice")
    total = math.fsum(part.share for part in load.slice_mix)
    if abs(total - 1.0) > 1e-6:
        yield Breach(
            path=(*path, "slice_mix"),
            expected="shares that sum to 1",
            actual=f"{total:g}",
            next_step="shares are parts of all requests; make them add up",
        )
