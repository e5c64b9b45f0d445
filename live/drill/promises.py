"""Ground truth of a drill: which promises a slowed replica breaks, by its fault's dose and by its clients.

The same two questions as in the simulator (``simulator.truth.violations``): whether a clause limits what the
fault changes (``faults.effects.slowing``), and whether answers come within the SLO of a slice. Latencies are
not predicted here: the clients of the drill measured them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from contracts.documents import ContractSpec
from contracts.documents.contract import Slice
from contracts.documents.scenario import ScheduledFault
from contracts.metrics import metric
from contracts.scoring.incident_measures import SLO_MISSED_LIMIT_RATIO
from contracts.telemetry import Source
from faults.effects import HEALTHY, ActiveFault, apply, slowing
from live.load import LoadRecord

#: Faults that change no answer; they break a promise where a clause limits them or answers come too late.
SLOWING_KINDS = ("slow", "kv_pressure", "latency")
#: The status of a request that was shed.
SHED = 429


def broken_by_dose(
    contract: ContractSpec, slices: tuple[str, ...], fault: ScheduledFault
) -> NDArray[np.bool_]:
    """Bool [S]: some clause allows less than the dose of ``fault``. Never for a kind that no clause limits,
    nor for a fault with a trigger, whose dose is the replica's state at times alone.
    """
    changed: dict[Source, float] = {}
    if fault.trigger is None and fault.dose is not None:
        struck = apply(HEALTHY, (ActiveFault(kind=fault.kind, intensity=1.0, dose=fault.dose),))
        changed = dict(slowing(struck).items() - slowing(HEALTHY).items())
    limits = [(one, changed.get(metric(one.metric).source)) for one in contract.clauses]
    named = [one.slices for one, dose in limits if dose is not None and dose > one.threshold]
    return np.array([any(only is None or name in only for only in named) for name in slices], dtype=np.bool_)


def broken_to_clients(
    contract: ContractSpec, slices: tuple[str, ...], struck: Iterable[LoadRecord]
) -> NDArray[np.bool_]:
    """Bool [S]: more of the requests that a replica was sent under the fault were late than E5 calls inside
    the SLO of the slice.

    struck: its requests of every slice. The fault strikes the replica and a drill's requests are alike, so
    each slice's SLO is held against all of them, as the simulator's truth does for slices without traffic.
    """
    asked = [one for one in struck if one.status != SHED]
    rows = [next(one for one in contract.slices if one.name == name) for name in slices]
    missed = [sum(not one.complete or is_late(one, row) for one in asked) for row in rows]
    return np.array(missed, dtype=np.int64) > SLO_MISSED_LIMIT_RATIO * len(asked)


def is_late(request: LoadRecord, promised: Slice) -> bool:
    """Whether an answered request came later than its client was ``promised``."""
    latest, first = promised.slo.latency_ms, promised.slo.ttft_ms
    return bool(
        (latest is not None and request.duration_ms > latest)
        or (request.streamed and first is not None and request.first_ms > first)
    )
