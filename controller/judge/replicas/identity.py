"""Which build a server is, is no statistic: who states the right one again keeps that clause at once.

A wrong fingerprint condemns at the first scrape that shows it. To be certified again it would take as many
clean observations as any other clause asks for, of rare scrapes minutes, in which a fleet whose servers were
all wrong goes on shedding. So a replica is certified again on clauses of identity once it has stated the
right build twice in a row (``perceive.identity``), and its kernel once everybody in rotation has.

Nor does it take peers: who states another build is to go, however many do, as long as the ejection cap lets
all of them go. Then the rest is the kernel. Where more do it is the kernel that changed.
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
    """bool [B, R, S, C]: alarms of identity of replicas that all may go; None: there are none.

    severe: alarms that move traffic.
    """
    contract = case.setup.contract
    if not some_at(severe, identity_clauses(contract)):
        return None
    found = severe & _identity(contract)
    if not bool(found.any()):
        return None
    away, cap_ratio = case.estimate.state.quarantined, contract.ejection_cap_ratio
    gone = case.ready & (away | found.any(axis=(2, 3)))
    present, out = (kernel_count(flags, case.owner, case.kernels) for flags in (case.ready, gone))
    return np.asarray(found & (out <= most_away(present, cap_ratio))[:, case.owner, None, None])


def replicas_restated(case: Case) -> DetectorOutputs:
    """The verdicts of ``case`` without clauses of identity on replicas that state the right build again."""
    restated, verdicts = case.estimate.restated, case.verdicts
    if restated is None:
        return verdicts
    back = restated[:, :, None, None] & _identity(case.setup.contract)
    alarms, memory = _without(verdicts.replicas, verdicts.replica_memory, back, case.setup)
    return verdicts._replace(replicas=alarms, replica_memory=memory)


def kernels_restated(
    judged: AlarmState, memory: DetectorState, state: ControllerState, case: Case
) -> tuple[AlarmState, DetectorState]:
    """The same of the kernels of which nobody in rotation is doubted, be it that who was is out by now;
    ``state`` after quarantine.
    """
    places = identity_clauses(case.setup.contract)
    if not (some_at(judged.alarm, places) or some_at(state.condemned, places)):
        return judged, memory
    ill = (judged.alarm | state.condemned) & _identity(case.setup.contract)
    here = case.ready & ~state.quarantined
    serving, doubted = (
        kernel_count(flags, case.owner, case.kernels)
        for flags in (here, here & (state.right_in_a_row < ENOUGH))
    )
    back = ill & ((doubted == 0) & (serving > 0))[:, :, None, None]
    return _without(judged, memory, back, case.setup)


@lru_cache(maxsize=64)
def _identity(contract: CompiledContract) -> NDArray[np.bool_]:
    """bool [S, C]: clauses on which build a server is, where they apply."""
    return np.asarray((contract.source == Source.FINGERPRINT) & applies(contract))


def _without(
    alarms: AlarmState, memory: DetectorState, back: Flags, setup: ControllerSetup
) -> tuple[AlarmState, DetectorState]:
    """Both without what is ``back`` [B, U, S, C]."""
    subjects = Subjects(alarms=alarms, memory=memory, was_alarm=alarms.alarm, doubted=back)
    found = subjects.without(back, setup.detector)
    return found.alarms, found.memory
