"""Protocol of all detectors of a contract: from sums of observations to alarms.

For every subject (a replica, or a kernel that pools its replicas), slice and clause, a detector gets four
sums of observations (``sums``) and returns alarm and relative excess. ``window`` judges completed tumbling
windows, ``burn_rate`` shorter bins, ``sequential`` every observation on arrival.

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
    """Facts of a fleet from which detectors are planned."""

    @property
    def layout(self) -> FleetLayout:
        """Names of the array axes."""

    @property
    def contract(self) -> CompiledContract:
        """The contract as arrays."""

    @property
    def rates(self) -> SampleRates:
        """Rates of probes and scrapes of one replica."""

    @property
    def certified(self) -> CertifiedValues | None:
        """Values of the golden prompts when each kernel was certified (None: unknown)."""

    @property
    def certified_observations(self) -> NDArray[np.float64] | None:
        """[K, S, n, M], certified probe values of each kernel on a slice's prompts (None: unknown)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmState:
    """Present alarms of a detector."""

    #: bool [B, U, S, C], the clause is broken.
    alarm: NDArray[np.bool_]
    #: float64 [B, U, S, C], relative distance beyond the limit, >= 0.
    excess: NDArray[np.float64]
    #: bool [B, U, S, C], evidence since the last alarm shows that the clause holds (upper limit inside).
    inside: NDArray[np.bool_]
    #: bool [B, U, S, C], judged in this tick.
    fresh: NDArray[np.bool_]
    #: float64 [B, U, S, C, 4], sums of the last judgement.
    judged: Sums
    #: bool [B, U, S, C], the evidence is against the clause, in alarm or not (None: whether ``judged`` lies
    #: beyond the limit).
    against: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledAlarms:
    """Alarms of the kernels before quarantine acts, and the detector's memory after them."""

    alarms: AlarmState
    memory: DetectorState
    #: bool [B, U, S, C], the alarms before this tick.
    was_alarm: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceBatch:
    """Observations of one tick, in their order; read by detectors ``by_observation``."""

    #: True: the subjects are kernels; False: replicas.
    pooled: bool
    #: Probe samples [B, P].
    probes: ProbeSamples
    #: bool [B, P], probes that count.
    received: NDArray[np.bool_]
    #: int64 [R], subject of each replica.
    subject_of: NDArray[np.int64]
    #: float64 [B, U, S, C, 4], of this tick only.
    sums: Sums
    #: bool [B, U, S, C], condemned so far, so that evidence of health is needed.
    doubted: NDArray[np.bool_]
    #: float64 [B], time since the last tick.
    since_s: NDArray[np.float64]
    #: bool [B, U, S], has observations in this tick; elsewhere ``sums`` are 0 (None: unknown).
    news: NDArray[np.bool_] | None = None
    #: bool [B, U], drifted from the certified baseline before this tick (None: probes are not compared).
    drifted: NDArray[np.bool_] | None = None
    #: bool [B, U], the gateway's counts of the kernel include a replica in quarantine (None: never).
    blurred: NDArray[np.bool_] | None = None


class Detector(Protocol):
    """State arrays in, alarms out; pure."""

    @property
    def by_observation(self) -> bool:
        """Judges every tick by its observations (``EvidenceBatch``), and kernels before quarantine acts.

        Such a detector's memory holds ``alarm`` and ``excess`` of its ``AlarmState`` under these names.
        """

    def initial(self, batch: int, subjects: int, contract: CompiledContract) -> DetectorState:
        """Memory of ``batch`` fleets (the first axis), each with ``subjects`` replicas or kernels."""

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
        """Process ``sums`` [B, U, S, C, 4] of the window that ends now where ``closed`` [B].

        Where ``closed`` is False, ``sums`` holds the running window so far; None: no window closes and none
        runs. Detectors ``by_observation`` read ``arrived`` instead. ``consume``: the arrays of ``state`` may
        be overwritten; otherwise they stay unchanged. The returned ``AlarmState`` is never overwritten.
        """

    def forget(self, state: DetectorState, mask: NDArray[np.bool_]) -> DetectorState:
        """Memory without evidence and alarm where ``mask`` bool [B, U, S, C]."""

    def evidence_ratio(self, state: DetectorState, contract: CompiledContract) -> NDArray[np.float64]:
        """Nearness of an alarm that moves traffic, float64 [B, U, S] in 0..2; 0: no evidence, >= 1: in alarm.

        It is that of the nearest clause whose alarm moves traffic (level L2 and up, or hard). A detector
        without evidence between its judgements returns 0 or 1 (``latched``).
        """


class HidesEvidence(Protocol):
    """A detector that can leave evidence out without a copy of its memory."""

    def evidence_ratio_without(
        self, state: DetectorState, hidden: NDArray[np.bool_], contract: CompiledContract
    ) -> NDArray[np.float64]:
        """``evidence_ratio`` of ``state`` as it would be after ``forget`` of ``hidden`` bool [B, U, S, C]."""


def hides_evidence(detector: Detector) -> TypeGuard[HidesEvidence]:
    """Whether it is a ``HidesEvidence``; an ``isinstance`` check would cost more than hiding saves."""
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
    """``array`` [B, U, S, C, ...] with ``blank`` at ``places``; no copy if it is already there."""
    if bool((array[places] == blank).all()):
        return array
    after = array.copy()
    after[places] = blank
    return after


def forgotten(state: DetectorState, mask: NDArray[np.bool_]) -> DetectorState:
    """Every array [B, U, S, C, ...] of ``state``, reset to 0 or False where ``mask`` bool [B, U, S, C]."""
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
    """Set ``ratio`` [B, U, S] to 1 where a clause of ``moves`` bool [C] is in ``alarm`` [B, U, S, C]."""
    cells = by_cell(alarm)
    for b in range(alarm.shape[0]):
        for u in range(alarm.shape[1]):
            if not some_of(cells, b, u):
                continue
            for s in range(alarm.shape[2]):
                for c in range(alarm.shape[3]):
                    if alarm[b, u, s, c] and moves[c]:
                        ratio[b, u, s] = 1.0
