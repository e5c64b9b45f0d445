"""Signals that need no probe: finish reasons, answer lengths, cache hits, and accepted draft tokens.

Each replica is judged against its own past, signal by signal, by the betting e-detector. The null hypothesis
of a signal is "its mean is at most the upper limit of what this process showed in its first ``PAST``
observations". One observation covers at least ``ANSWERS`` answers. Users change as well, so an alarm is only
information (L1) and moves nothing. A counter that is missing, renamed or decreased is unknown. A new process
begins a new past.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from controller.detect.streams.eprocess import Betting
from controller.detect.streams.protocol import StreamState, guaranteed_threshold
from live.observe.trust import CounterTrust

if TYPE_CHECKING:  # reading a log must not import the metrics readers
    from live.observe.metrics import EngineReading

#: Least number of answers of one observation; number of observations that make up a past.
ANSWERS, PAST = 16, 30
#: Least mean number of observations until a false alarm of one signal of one replica.
ARL0 = 1e5
#: Number of newest observations in a report's "recent" mean.
_RECENT = 16
#: Standard errors above the past's mean; least margin of a share, because no past excludes less than that.
_ERRORS, _LEAST = 3.0, 0.02

Counts = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """The ratio ``part`` / ``whole`` in ``unit``; larger is worse. ``rest``: 1 minus that ratio."""

    name: str
    part: str
    whole: str
    rest: bool = False
    unit: str = "ratio"

    def value(self, counted: Counts) -> float:
        """The signal's value; NaN if a counter is unknown or nothing was counted."""
        whole = counted.get(self.whole, 0.0)
        if not whole > 0.0 or self.part not in counted:
            return math.nan
        share = counted[self.part] / whole
        return 1.0 - share if self.rest else share


SIGNALS: tuple[Signal, ...] = (
    Signal(name="length_stops", part="length_stops", whole="answers"),
    Signal(name="error_stops", part="error_stops", whole="answers"),
    Signal(name="repetition_stops", part="repetition_stops", whole="answers"),
    Signal(name="corrupted", part="corrupted", whole="answers"),
    Signal(name="long_answers", part="answer_tokens", whole="lengths", unit="tokens per answer"),
    Signal(name="short_answers", part="lengths", whole="answer_tokens", unit="answers per token"),
    Signal(name="cache_misses", part="cache_hits", whole="cache_queries", rest=True),
    Signal(name="drafts_rejected", part="accepted", whole="drafted", rest=True),
)

_SIGNAL = {one.name: one for one in SIGNALS}


@dataclass(frozen=True, slots=True, kw_only=True)
class PassiveAlarm:
    """One signal of one replica that became worse than its own past, or recovered (``began`` False).

    recent, usual, limit: mean of the newest observations, mean of the past, and upper limit of the mean, in
    ``unit``. observations: number that was judged; evidence and threshold in nats.
    """

    replica: str
    signal: str
    unit: str
    began: bool
    recent: float
    usual: float
    limit: float
    observations: int
    evidence_nats: float
    threshold_nats: float


@dataclass(slots=True)
class _Stream:
    """One signal of one process: it learns the past, then accumulates evidence."""

    past: list[float] = field(default_factory=list)
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    judged: int = 0
    detector: Betting | None = None
    state: StreamState | None = None

    def take(self, value: float) -> None:
        if self.detector is None or self.state is None:
            self.past.append(value)
            if len(self.past) == PAST:
                self.detector = Betting(null_mean=_limit(self.past))
                self.state = self.detector.initial(1)
            return
        self.detector.advance(self.state, np.array([value]), np.array([True]))
        self.recent.append(value)
        self.judged += 1

    @property
    def alarm(self) -> bool | None:
        """Whether it is in alarm; None while the past is being learned."""
        if self.state is None:
            return None
        return bool(self.state.statistic[0] >= guaranteed_threshold(ARL0))

    def report(self, replica: str, signal: Signal) -> PassiveAlarm:
        """The evidence behind the alarm."""
        assert self.state is not None
        return PassiveAlarm(
            replica=replica,
            signal=signal.name,
            unit=signal.unit,
            began=True,
            recent=float(np.mean(self.recent)),
            usual=float(np.mean(self.past)),
            limit=_limit(self.past),
            observations=self.judged,
            evidence_nats=float(self.state.statistic[0]),
            threshold_nats=float(guaranteed_threshold(ARL0)),
        )


def _limit(past: list[float]) -> float:
    """Upper limit of the signal's mean under the null hypothesis."""
    mean, deviation = float(np.mean(past)), float(np.std(past, ddof=1))
    return max(mean + _ERRORS * deviation / math.sqrt(len(past)), 1.05 * mean, min(_LEAST, mean + _LEAST))


def _counters(told: Counts) -> NDArray[np.float64]:
    """float64 [N], the counters of all signals in a fixed order; NaN: unknown."""
    return np.array([told.get(name, math.nan) for one in SIGNALS for name in (one.part, one.whole)])


@dataclass(slots=True)
class _Process:
    """The counters of one server process. counted: since the last observation."""

    started_at_s: float | None
    last: Counts
    counted: dict[str, float] = field(default_factory=dict)
    streams: dict[str, _Stream] = field(default_factory=lambda: {one.name: _Stream() for one in SIGNALS})
    trust: CounterTrust = field(default_factory=CounterTrust)

    def __post_init__(self) -> None:
        self.trust.take(self.started_at_s, _counters(self.last))

    def take(self, now: Counts) -> None:
        """Process the counters of a new scrape."""
        risen = {name: value - self.last[name] for name, value in now.items() if name in self.last}
        self.last = now
        if not self.trust.take(self.started_at_s, _counters(now)):
            self.counted = {}
            return
        known = risen.keys() & (self.counted.keys() or risen.keys())
        self.counted = {name: self.counted.get(name, 0.0) + risen[name] for name in known}
        if self.counted.get("answers", 0.0) < ANSWERS:
            return
        for signal in SIGNALS:
            value = signal.value(self.counted)
            if not math.isnan(value):
                self.streams[signal.name].take(value)
        self.counted = {}


class PassiveWatch:
    """Listens to scrapes. told: called with replica and signal when an alarm begins."""

    def __init__(self, told: Callable[[str, str], None] = lambda _replica, _signal: None) -> None:
        self._told = told
        self._processes: dict[str, _Process] = {}
        self._alarmed: dict[tuple[str, str], PassiveAlarm] = {}
        self._changes: list[PassiveAlarm] = []

    def receive(self, readings: Mapping[str, EngineReading]) -> None:
        """Process the scrapes that ended, by replica."""
        for replica, reading in readings.items():
            process = self._processes.get(replica)
            if process is None or process.started_at_s != reading.started_at_s:
                self._processes[replica] = _Process(reading.started_at_s, dict(reading.signals))
                continue
            process.take(dict(reading.signals))
        alarmed = {place for place, alarm in self.alarms().items() if alarm}
        for replica, signal in sorted(alarmed - self._alarmed.keys()):
            stream = self._processes[replica].streams[signal]
            self._alarmed[replica, signal] = found = stream.report(replica, _SIGNAL[signal])
            self._changes.append(found)
            self._told(replica, signal)
        for place in sorted(self._alarmed.keys() - alarmed):
            self._changes.append(replace(self._alarmed.pop(place), began=False))

    def changes(self) -> list[PassiveAlarm]:
        """Alarms that began or ended and were not dropped yet, oldest first."""
        return list(self._changes)

    def in_force(self) -> Mapping[tuple[str, str], PassiveAlarm]:
        """(replica, signal) -> its present alarm."""
        return dict(self._alarmed)

    def drop(self, count: int) -> None:
        """Forget the oldest ``count`` changes, which have been written to the log."""
        del self._changes[:count]

    def alarms(self) -> dict[tuple[str, str], bool | None]:
        """(replica, signal) -> whether it is worse than its own past; None: unknown."""
        return {
            (replica, name): one.alarm
            for replica, process in self._processes.items()
            for name, one in process.streams.items()
        }
