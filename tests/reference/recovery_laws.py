"""Recovery as plain detectors of single streams: the reference for compiled evidence of health.

Each is an e-process of the null "still broken" (``controller.detect.sequential.evidence``). With
``Start.SUM`` the attempt renews itself: then ``healthy_threshold`` bounds the rate instead, at most one
false return in ``1 / (1 - confidence)`` observations, and a kernel that was broken for long is not held to
its past.

* ``MeanRecovery``: observations in [0, upper], null "mean >= null_mean" (a clause's threshold, or a stated
  multiple of the certified mean). With 0/1 observations: null "rate >= rho".
* ``MatchRecovery``: comparison with certified values without repeat noise, null "at least ``share`` of the
  prompts differ".
* ``ShiftRecovery``: the same with noise; observations are scores, null "shifted by ``shift`` or more".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from controller.detect.sequential.evidence import SHARES, healthy_threshold
from controller.detect.streams.eprocess import Start
from controller.detect.streams.protocol import LOWEST, Flags, Floats, StreamState


def _blank(streams: int, bets: int, start: Start) -> StreamState:
    level = 0.0 if start is Start.FIRST else LOWEST
    return StreamState(memory=np.full((streams, bets), level), statistic=np.full(streams, level))


def _grow(state: StreamState, log_e: Floats, present: Flags, start: Start) -> None:
    """Add ``log_e`` [N, G] to the log-evidence where ``present``; bets count equally."""
    if start is Start.SUM:
        base = np.logaddexp(state.memory, 0.0)
    else:
        base = np.maximum(state.memory, 0.0) if start is Start.BEST else state.memory
    grown = np.clip(base + log_e, LOWEST, -LOWEST)
    state.memory[present] = grown[present]
    level = np.logaddexp.reduce(state.memory, axis=1) - math.log(state.memory.shape[1])
    state.statistic[present] = level[present]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanRecovery:
    """Null: observations in [0, upper] with ``E[y | past] >= null_mean``; values above ``upper`` are read as
    it.
    """

    null_mean: float
    upper: float
    start: Start = Start.FIRST

    def __post_init__(self) -> None:
        if not 0.0 < self.null_mean < self.upper < math.inf:
            raise ValueError(f"expected 0 < null mean < upper, got {self.null_mean} and {self.upper}")

    @property
    def name(self) -> str:
        """Null, range and start."""
        return f"mean-recovery({self.null_mean:g},{self.upper:g},{self.start.name.lower()})"

    def initial(self, streams: int) -> StreamState:
        """No evidence of health."""
        return _blank(streams, len(SHARES), self.start)

    def advance(self, state: StreamState, value: Floats, present: Flags) -> None:
        """See the protocol."""
        most = self.null_mean / (self.upper - self.null_mean)  # keeps every e-value above 0
        short = 1.0 - np.clip(np.where(present, value, 0.0), 0.0, self.upper) / self.null_mean
        _grow(state, np.log1p(np.array(SHARES) * most * short[:, None]), present, self.start)

    def units_when_clean(self, confidence: float) -> int:
        """Observations needed where every one of them is 0: the fewest at which ``confidence`` is reached."""
        most = self.null_mean / (self.upper - self.null_mean)
        per_unit = math.log1p(SHARES[-1] * most)
        return math.ceil((healthy_threshold(confidence) + math.log(len(SHARES))) / per_unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchRecovery:
    """Null: each probe differs from its certified value with probability >= ``share``, given the past.

    Observations are scores: 0 is a match, anything else a difference, which ends the attempt.
    """

    share: float
    start: Start = Start.FIRST

    def __post_init__(self) -> None:
        if not 0.0 < self.share < 1.0:
            raise ValueError(f"expected a share between 0 and 1, got {self.share}")

    @property
    def name(self) -> str:
        """Share and start."""
        return f"match-recovery({self.share:g},{self.start.name.lower()})"

    def initial(self, streams: int) -> StreamState:
        """No evidence of health."""
        return _blank(streams, 1, self.start)

    def advance(self, state: StreamState, value: Floats, present: Flags) -> None:
        """See the protocol."""
        log_e = np.where(value == 0.0, -math.log1p(-self.share), 2.0 * LOWEST)
        _grow(state, log_e[:, None], present, self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftRecovery:
    """Null: scores are normal with variance 1 and a mean at least ``shift`` from 0, either way.

    ``e = exp(shift^2 / 2) / cosh(shift * z)`` has mean 1 at a shift of exactly ``shift`` and less beyond.
    """

    shift: float
    start: Start = Start.FIRST

    def __post_init__(self) -> None:
        if not 0.0 < self.shift < 100.0:
            raise ValueError(f"expected a shift within 0..100, got {self.shift}")

    @property
    def name(self) -> str:
        """Shift and start."""
        return f"shift-recovery({self.shift:g},{self.start.name.lower()})"

    def initial(self, streams: int) -> StreamState:
        """No evidence of health."""
        return _blank(streams, 1, self.start)

    def advance(self, state: StreamState, value: Floats, present: Flags) -> None:
        """See the protocol."""
        reach = self.shift * np.abs(np.where(present, value, 0.0))
        log_cosh = reach + np.log1p(np.exp(-2.0 * reach)) - math.log(2.0)
        _grow(state, (self.shift**2 / 2.0 - log_cosh)[:, None], present, self.start)
