"""Identity clauses: the build of a server is a fact, not a statistic, so it is re-certified at once.

A wrong fingerprint condemns at the first scrape that shows it. Re-certification as on other clauses would
need many clean observations. With rare scrapes that takes minutes, during which a fleet whose servers all had
the wrong build keeps shedding. So a replica is re-certified on identity clauses once it has stated the right
build twice in a row (``perceive.identity``), and its kernel once every replica in rotation has.

Peers do not matter here. All replicas that state another build are ejected, however many, as long as the
ejection cap allows to eject all of them. The remaining replicas are then the kernel. If there are more, the
kernel itself has changed.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import Source
from controller.cells import kernel_count, some_at
from controller.detect.as_certified import Subjects
from controller.detect.clauses import applies, identity_clauses
from controller.detect.detector import AlarmState, DetectorState
from controller.detect.tick import DetectorOutputs
from controller.judge.replicas.departures import Case, Flags
from controller.judge.replicas.quarantine_pass import most_away
from controller.options import ControllerSetup
from controller.perceive.identity import ENOUGH
from controller.state import ControllerState


def wrong_builds(severe: Flags, case: Case) -> Flags | None:
    """bool [B, R, S, C]: identity alarms of replicas that can all be ejected; None: no such replica.

    severe: alarms that move traffic.
    """
    contract = case.setup.contract
    if not some_at(severe, identity_clauses(contract)):
        return None
    wrong = severe & _identity(contract)
    if not bool(wrong.any()):
        return None
    away, cap_ratio = case.estimate.state.quarantined, contract.ejection_cap_ratio
    gone = case.ready & (away | wrong.any(axis=(2, 3)))
    present, out = (kernel_count(flags, case.owner, case.kernels) for flags in (case.ready, gone))
    return np.asarray(wrong & (out <= most_away(present, cap_ratio))[:, case.owner, None, None])


def replicas_restated(case: Case) -> DetectorOutputs:
    """The verdicts of ``case`` without identity alarms of replicas that state the right build again."""
    restated, verdicts = case.estimate.restated, case.verdicts
    if restated is None:
        return verdicts
    back = restated[:, :, None, None] & _identity(case.setup.contract)
    alarms, memory = _without(verdicts.replicas, verdicts.replica_memory, back, case.setup)
    return verdicts._replace(replicas=alarms, replica_memory=memory)


def kernels_restated(
    judged: AlarmState, memory: DetectorState, state: ControllerState, case: Case
) -> tuple[AlarmState, DetectorState]:
    """The verdicts on kernels, without identity alarms where all replicas in rotation state the right build.

    Replicas with a wrong build may have left rotation in this tick. state: after quarantine.
    """
    places = identity_clauses(case.setup.contract)
    if not (some_at(judged.alarm, places) or some_at(state.condemned, places)):
        return judged, memory
    unhealthy = (judged.alarm | state.condemned) & _identity(case.setup.contract)
    in_rotation = case.ready & ~state.quarantined
    serving, doubted = (
        kernel_count(flags, case.owner, case.kernels)
        for flags in (in_rotation, in_rotation & (state.right_in_a_row < ENOUGH))
    )
    restated = unhealthy & ((doubted == 0) & (serving > 0))[:, :, None, None]
    return _without(judged, memory, restated, case.setup)


@lru_cache(maxsize=64)
def _identity(contract: CompiledContract) -> NDArray[np.bool_]:
    """bool [S, C]: clauses on the build of a server (its fingerprint), where they apply."""
    return np.asarray((contract.source == Source.FINGERPRINT) & applies(contract))


def _without(
    alarms: AlarmState, memory: DetectorState, back: Flags, setup: ControllerSetup
) -> tuple[AlarmState, DetectorState]:
    """``alarms`` and ``memory`` without the alarms and evidence of ``back`` bool [B, U, S, C]."""
    subjects = Subjects(alarms=alarms, memory=memory, was_alarm=alarms.alarm, doubted=back)
    cleared = subjects.without(back, setup.detector)
    return cleared.alarms, cleared.memory
