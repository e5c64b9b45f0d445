"""Ground truth of a drill: which clauses and SLOs a slowed replica breaks, by its dose and by its clients.

The questions are those of the simulator (``simulator.truth.violations``): does a clause limit the quantity
that the fault changes (``faults.effects.slowing``), and do answers meet the SLO of a slice? Latencies are not
predicted here, because the drill's clients measured them.
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

#: Faults that change no answer; they violate a clause that limits their effect, or an SLO by late answers.
SLOWING_KINDS = ("slow", "kv_pressure", "latency")
#: HTTP status of a shed request.
SHED = 429


def broken_by_dose(
    contract: ContractSpec, slices: tuple[str, ...], fault: ScheduledFault
) -> NDArray[np.bool_]:
    """Bool [S]: some clause allows less than the dose of ``fault``.

    Always False for a kind that no clause limits, and for a fault with a trigger, because its dose holds only
    while the trigger does.
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
    """Bool [S]: the late share of the requests sent to a replica under the fault exceeds E5's SLO limit.

    struck: its requests of every slice. The fault strikes the whole replica and the requests of a drill are
    alike, so each slice's SLO is compared with all of them, as the simulator does for slices without traffic.
    """
    asked = [one for one in struck if one.status != SHED]
    rows = [next(one for one in contract.slices if one.name == name) for name in slices]
    missed = [sum(not one.complete or is_late(one, row) for one in asked) for row in rows]
    return np.array(missed, dtype=np.int64) > SLO_MISSED_LIMIT_RATIO * len(asked)


def is_late(request: LoadRecord, promised: Slice) -> bool:
    """Whether an answer came later than the SLO of its slice allows."""
    latest, first = promised.slo.latency_ms, promised.slo.ttft_ms
    return bool(
        (latest is not None and request.duration_ms > latest)
        or (request.streamed and first is not None and request.first_ms > first)
    )
