"""What every detector of a contract is: from the sums of observations to alarms, behind one small protocol.

A detector sees, for every subject (a replica, or a kernel that pools its replicas), slice and clause, four
sums of observations (``sums``) and answers with alarm and relative excess. ``window`` judges completed
tumbling windows, ``burn_rate`` shorter bins, ``sequential`` every observation when it comes.

Axes: B fleets, U subjects, S slices, C clauses, P probes, R replicas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.certified import CertifiedValues
from contracts.compiled.contract import CompiledContract, FleetLayout
from contracts.jit import compiled
from contracts.telemetry import ProbeSamples, SampleRates
from controller.cells import by_cell, some_of
from controller.detect.clauses import moves_traffic
from controller.detect.sums import Sums

DetectorState = dict[str, NDArray[np.generic]]


class CertifiedFleet(Protocol):
    """The facts of a fleet that detectors are planned by."""

    @property
    def layout(self) -> FleetLayout:
        """Names of the array axes."""

    @property
    def contract(self) -> CompiledContract:
        """The contract as arrays."""

    @property
    def rates(self) -> SampleRates:
        """Probes and scrapes of one replica."""

    @property
    def certified(self) -> CertifiedValues | None:
        """Values of the golden prompts when each kernel was certified (None: not known)."""

    @property
    def certified_observations(self) -> NDArray[np.float64] | None:
        """[K, S, n, M], probe values of each kernel on a slice's prompts when certified (None: of none)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmState:
    """What a detector says now."""

    #: bool [B, U, S, C], the clause is broken.
    alarm: NDArray[np.bool_]
    #: float64 [B, U, S, C], relative distance beyond the limit, >= 0.
    excess: NDArray[np.float64]
    #: bool [B, U, S, C], evidence since the last alarm shows that the clause holds (upper limit inside).
    inside: NDArray[np.bool_]
    #: bool [B, U, S, C], this was judged in this tick.
    fresh: NDArray[np.bool_]
    #: float64 [B, U, S, C, 4], the sums it was last judged by.
    judged: Sums
    #: bool [B, U, S, C], evidence speaks against the clause, in alarm or not (None: where the sums judged lie
    #: beyond the limit).
    against: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledAlarms:
    """What a detector says of the kernels before quarantine acts, and its memory after saying so."""

    alarms: AlarmState
    memory: DetectorState
    #: bool [B, U, S, C], the alarms before.
    was_alarm: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceBatch:
    """What one tick brought, in its order; read by detectors ``by_observation``."""

    #: The subjects are kernels, else replicas.
    pooled: bool
    #: Probe samples [B, P].
    probes: ProbeSamples
    #: bool [B, P], which of them count.
    received: NDArray[np.bool_]
    #: int64 [R], replica to subject.
    subject_of: NDArray[np.int64]
    #: float64 [B, U, S, C, 4], of this tick alone.
    sums: Sums
    #: bool [B, U, S, C], condemned so far, so that evidence of health is wanted.
    doubted: NDArray[np.bool_]
    #: float64 [B], time since the last tick.
    since_s: NDArray[np.float64]
    #: bool [B, U, S], where observations came; elsewhere ``sums`` are 0 (None: not known).
    news: NDArray[np.bool_] | None = None
    #: bool [B, U], known before this tick not to be what was certified (None: nobody compares).
    drifted: NDArray[np.bool_] | None = None
    #: bool [B, U], a replica of the kernel is in quarantine, whose answers the gateway counts (None: no).
    blurred: NDArray[np.bool_] | None = None


class Detector(Protocol):
    """State arrays in, alarms out; pure."""

    @property
    def by_observation(self) -> bool:
        """Judges every tick by what arrived in it (``EvidenceBatch``), and kernels before quarantine acts.

        Such a detector's memory holds ``alarm`` and ``excess`` of its ``AlarmState`` under these names.
        """

    def initial(self, batch: int, subjects: int, contract: CompiledContract) -> DetectorState:
        """Memory of ``batch`` fleets, the first axis of every array, with ``subjects`` replicas or kernels
        each.
        """

    def update(
        self,
        state: DetectorState,
        sums: Sums | None,
        closed: NDArray[np.bool_],
        contract: CompiledContract,
        arrived: EvidenceBatch | None = None,
        *,
        consume: bool = False,
    ) -> tuple[AlarmState, DetectorState]:
        """Take in ``sums`` [B, U, S, C, 4] of the window that ends now where ``closed`` [B].

        Where ``closed`` is False, ``sums`` holds the running window so far; None: no window closes and none
        runs. Detectors ``by_observation`` read ``arrived`` instead. ``consume``: the caller gives the
        arrays of ``state`` away, so they may be written to; else they stay as they are. ``AlarmState``
        lasts either way.
        """

    def forget(self, state: DetectorState, mask: NDArray[np.bool_]) -> DetectorState:
        """Memory without evidence and alarm where ``mask`` bool [B, U, S, C]."""

    def evidence_ratio(self, state: DetectorState, contract: CompiledContract) -> NDArray[np.float64]:
        """How near an alarm that moves traffic is, float64 [B, U, S] in 0..2: 0 nothing known, >= 1 in alarm.

        Of the clauses whose alarm moves traffic (level L2 and up, or hard) the nearest one. A detector that
        keeps no evidence between its judgements answers with 0 and 1 (``latched``).
        """


class HidesEvidence(Protocol):
    """A detector that need not forget, in a copy, what is not to be shown."""

    def evidence_ratio_without(
        self, state: DetectorState, hidden: NDArray[np.bool_], contract: CompiledContract
    ) -> NDArray[np.float64]:
        """``evidence_ratio`` of ``state`` as it would be after ``forget`` of ``hidden`` bool [B, U, S, C]."""


def hides_evidence(detector: Detector) -> TypeGuard[HidesEvidence]:
    """Whether it is a ``HidesEvidence``; asking the protocol takes longer than the answer saves."""
    return hasattr(detector, "evidence_ratio_without")


def floats(state: DetectorState, name: str) -> NDArray[np.float64]:
    """The array ``name`` of ``state``, as numbers."""
    return np.asarray(state[name], dtype=np.float64)


def flags(state: DetectorState, name: str) -> NDArray[np.bool_]:
    """The array ``name`` of ``state``, as flags."""
    return np.asarray(state[name], dtype=np.bool_)


def blanked(
    array: NDArray[np.generic], blank: NDArray[np.generic] | np.generic, places: tuple[NDArray[np.intp], ...]
) -> NDArray[np.generic]:
    """``array`` [B, U, S, C, ...] with ``blank`` at ``places``: itself where it stands there already."""
    if bool((array[places] == blank).all()):
        return array
    after = array.copy()
    after[places] = blank
    return after


def forgotten(state: DetectorState, mask: NDArray[np.bool_]) -> DetectorState:
    """Every array [B, U, S, C, ...] of ``state`` back at 0 or False where ``mask`` bool [B, U, S, C]."""
    places = np.nonzero(mask)
    return {name: blanked(array, array.dtype.type(0), places) for name, array in state.items()}


def latched(state: DetectorState, contract: CompiledContract) -> NDArray[np.float64]:
    """float64 [B, U, S]: 1 where a clause that moves traffic is in alarm, else 0 (``evidence_ratio``)."""
    alarm = flags(state, "alarm")
    ratio = np.zeros(alarm.shape[:3])
    _latch(ratio, alarm, moves_traffic(contract))
    return ratio


@compiled
def _latch(ratio, alarm, moves):
    """1 in ``ratio`` [B, U, S] where a clause of ``moves`` bool [C] is in ``alarm`` [B, U, S, C]."""
    cells = by_cell(alarm)
    for b in range(alarm.shape[0]):
        for u in range(alarm.shape[1]):
            if not some_of(cells, b, u):
                continue
            for s in range(alarm.shape[2]):
                for c in range(alarm.shape[3]):
                    if alarm[b, u, s, c] and moves[c]:
                        ratio[b, u, s] = 1.0
