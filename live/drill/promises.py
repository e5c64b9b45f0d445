"""Which promises of the contract a slowed replica breaks in truth: by its fault's dose, and by its clients.

The same two questions as the simulator's truth (``simulator.truth.violations``): whether a clause limits what
the fault changes, and whether answers come within the SLO of a slice. Here nobody has to expect how late they
are: the clients of the drill saw it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from contracts.documents import ContractSpec
from contracts.documents.contract import Slice
from contracts.documents.scenario import ScheduledFault
from contracts.scoring.incident_measures import SLO_MISSED_LIMIT_RATIO
from live.load import LoadRecord

#: Faults that change no answer; they break a promise where a clause limits them or answers come too late.
SLOWING_KINDS = ("slow", "kv_pressure", "latency")
#: What the dose of a fault is, by the metric of the clauses that limit it.
_LIMITED_BY = {"slow": "step_time_ratio", "kv_pressure": "kv_used_ratio"}
#: The status of a request that was shed.
SHED = 429


def broken_by_dose(
    contract: ContractSpec, slices: tuple[str, ...], fault: ScheduledFault
) -> NDArray[np.bool_]:
    """Bool [S]: some clause allows less than the dose of ``fault``. Never for a kind that no clause limits,
    nor for a fault with a trigger, whose dose is the replica's state at times alone.
    """
    metric = None if fault.trigger else _LIMITED_BY.get(fault.kind)
    limits = [one for one in contract.clauses if one.metric == metric]
    named = [one.slices for one in limits if fault.dose is not None and fault.dose > one.threshold]
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
