"""The window detector: judges every completed tumbling window of sums.

Limits are one-sided at the contract's ``alarm_confidence`` (``sums``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from controller.cells import some_in
from controller.detect.clauses import applies, needs_traffic, zero_tolerance_places
from controller.detect.detector import (
    AlarmState,
    DetectorState,
    EvidenceBatch,
    flags,
    floats,
    forgotten,
    latched,
)
from controller.detect.sums import Sums, significant
from controller.detect.window_pass import (
    WindowMarks,
    WindowMemory,
    WindowRules,
    alarm_at_once,
    close_windows,
    find_at_once,
)

#: What ``alarm_at_once`` writes to; ``AlarmState`` shows the first two.
_AT_ONCE = ("alarm", "excess", "inside", "since_alarm", "judged")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowDetector:
    """Judges each completed window; scarce observations are collected over at most ``carry_windows``.

    A hard rate clause with limit 0 raises an alarm at the first observation over its threshold, before the
    window closes. An alarm on traffic ends after ``expiry_windows`` windows without an observation, because
    only traffic can show whether it still holds. A clause counts as inside if its upper limit at
    ``recertify_confidence`` is. That confidence may be lower than the alarm's: the risk is an early return,
    which the half-open return bounds.
    """

    carry_windows: int = 5
    expiry_windows: int = 5
    recertify_confidence: float = 0.95

    @property
    def by_observation(self) -> bool:
        """False: it judges only sums of whole windows."""
        return False

    def initial(self, batch: int, subjects: int, contract: CompiledContract) -> DetectorState:
        """No alarm, nothing judged: the arrays of ``WindowMemory``."""
        shape = (batch, subjects, len(contract.slices), len(contract.clause_ids))
        return {
            "alarm": np.zeros(shape, dtype=np.bool_),
            "excess": np.zeros(shape),
            "inside": np.zeros(shape, dtype=np.bool_),
            "carried": np.zeros((*shape, 4)),
            "carried_windows": np.zeros(shape, dtype=np.int64),
            "judged": np.zeros((*shape, 4)),
            "since_alarm": np.zeros((*shape, 4)),
            "silent_windows": np.zeros(shape, dtype=np.int64),
        }

    def update(
        self,
        state: DetectorState,
        sums: Sums | None,
        closed: NDArray[np.bool_],
        contract: CompiledContract,
        arrived: EvidenceBatch | None = None,  # noqa: ARG002
        *,
        consume: bool = False,
    ) -> tuple[AlarmState, DetectorState]:
        """Judge complete windows; see the protocol."""
        if sums is None:
            return _alarm_state(state, np.zeros(flags(state, "alarm").shape, dtype=np.bool_)), state
        state, fresh = _alarm_at_once(state, sums, contract, consume)
        if some_in(closed):
            state = self._close(state, sums, closed, contract, fresh, consume)
        return _alarm_state(state, fresh), state

    def forget(self, state: DetectorState, mask: NDArray[np.bool_]) -> DetectorState:
        """See the protocol."""
        return forgotten(state, mask)

    def evidence_ratio(self, state: DetectorState, contract: CompiledContract) -> NDArray[np.float64]:
        """0 or 1: a window gives no evidence before it closes."""
        return latched(state, contract)

    def _close(
        self,
        state: DetectorState,
        sums: Sums,
        closed: NDArray[np.bool_],
        contract: CompiledContract,
        fresh: NDArray[np.bool_],
        consume: bool,
    ) -> DetectorState:
        """Judge the windows that end, and mark them in ``fresh``."""
        state = _copied(state, WindowMemory._fields[:2] if consume else WindowMemory._fields)
        marks = WindowMarks(fresh=fresh, beyond=np.zeros_like(fresh), hopeful=np.zeros_like(fresh))
        rules = _rules(contract, self.carry_windows, self.expiry_windows)
        close_windows(WindowMemory(**state), marks, sums, closed, rules)
        judged, since = floats(state, "judged"), floats(state, "since_alarm")
        broken = self._broken(judged, marks.beyond, contract)
        flags(state, "alarm")[marks.beyond] = broken
        floats(state, "excess")[marks.beyond] *= broken
        flags(state, "inside")[marks.hopeful] = significant(
            since, marks.hopeful, contract, self.recertify_confidence, above=False
        )
        return state

    def _broken(
        self, judged: Sums, beyond: NDArray[np.bool_], contract: CompiledContract
    ) -> NDArray[np.bool_]:
        """Which of the windows ``beyond`` bool [B, U, S, C] raise an alarm, in their order."""
        return significant(judged, beyond, contract, contract.alarm_confidence, above=True)


def _alarm_at_once(
    state: DetectorState, sums: Sums, contract: CompiledContract, consume: bool
) -> tuple[DetectorState, NDArray[np.bool_]]:
    """Alarms of zero-tolerance clauses before the window closes, and where they are fresh."""
    fresh = np.zeros(sums.shape[:-1], dtype=np.bool_)
    places = zero_tolerance_places(contract)
    if not places.size:
        return state, fresh
    news, raises = find_at_once(fresh, sums, places, applies(contract), *(state[name] for name in _AT_ONCE))
    if news:
        # An earlier ``AlarmState`` may still be in use, so its arrays are copied where they change.
        state = _copied(state, (_AT_ONCE[:2] if raises else ()) if consume else _AT_ONCE)
        alarm_at_once(fresh, sums, places, *(state[name] for name in _AT_ONCE))
    return state, fresh


@lru_cache(maxsize=64)
def _rules(contract: CompiledContract, carry_windows: int, expiry_windows: int) -> WindowRules:
    return WindowRules(
        applies=applies(contract),
        needs_traffic=needs_traffic(contract),
        is_rate=contract.is_rate,
        rate_limit=contract.rate_limit,
        threshold=contract.threshold,
        sense=contract.sense,
        min_samples=contract.min_samples,
        carry_windows=carry_windows,
        expiry_windows=expiry_windows,
    )


def _copied(state: DetectorState, names: Sequence[str]) -> DetectorState:
    """``state`` with copies of the arrays ``names``, which may then be written to."""
    return {**state, **{name: state[name].copy() for name in names}}


def _alarm_state(state: DetectorState, fresh: NDArray[np.bool_]) -> AlarmState:
    """The alarms in ``state``; ``fresh`` bool [B, U, S, C]."""
    return AlarmState(
        alarm=flags(state, "alarm"),
        excess=floats(state, "excess"),
        inside=flags(state, "inside"),
        fresh=fresh,
        judged=floats(state, "judged"),
    )
