"""Detectors: from sums of observation units to alarms, behind one small protocol.

A detector sees, for every unit of evidence ``U`` (a replica or a kernel), slice and clause, four sums
(``COUNT``, ``TOTAL``, ``SQUARES``, ``OVER``) and answers with alarm and relative excess. ``WindowDetector``
judges completed tumbling windows; sequential detectors can take its place through the same protocol.

Limits are one-sided at the contract's ``alarm_confidence``. Rates use the exact (Clopper-Pearson) limit
in its test form, a binomial tail through the incomplete beta function; means use Student's t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from contracts.compiled import CompiledContract, Source
from contracts.telemetry import ProbeSamples
from controller.windows_compiled import alarm_at_once, close_windows, find_at_once, latch

#: Last axis of every sums array: units, sum of (clipped) values, sum of squares, units over the threshold.
COUNT, TOTAL, SQUARES, OVER = 0, 1, 2, 3

Sums = NDArray[np.float64]
DetectorState = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """What a detector says now. alarm, inside: bool [B, U, S, C]; excess: float64 [B, U, S, C].

    alarm: the clause is broken. excess: relative distance beyond the limit, >= 0. inside: evidence
    since the last alarm shows that the clause holds (upper limit inside). fresh: bool [B, U, S, C], this
    verdict was formed in this tick. judged: float64 [B, U, S, C, 4], sums it was last formed from.
    against: bool [B, U, S, C], evidence speaks against the clause, in alarm or not; None: where the sums
    judged lie beyond the limit.
    """

    alarm: NDArray[np.bool_]
    excess: NDArray[np.float64]
    inside: NDArray[np.bool_]
    fresh: NDArray[np.bool_]
    judged: Sums
    against: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What a detector says of replicas or of kernels, and its memory after saying so.

    was_alarm: bool [B, U, S, C], the alarms before.
    """

    verdicts: Verdicts
    memory: DetectorState
    was_alarm: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """What one tick brought for U units of evidence, in its order; read by detectors ``by_unit``.

    pooled: the units are kernels, else replicas. probes, heard: bool [B, P], probe samples and which of
    them count. unit_of: int64 [R], replica to unit. sums: float64 [B, U, S, C, 4], of this tick alone.
    doubted: bool [B, U, S, C], condemned so far, so that evidence of health is wanted. since_s: float64 [B],
    time since the last tick. news: bool [B, U, S], where units came; elsewhere ``sums`` are 0
    (None: not known, anywhere). changed: bool [B, U], known before this tick not to be what was certified
    (None: nobody compares).
    """

    pooled: bool
    probes: ProbeSamples
    heard: NDArray[np.bool_]
    unit_of: NDArray[np.int64]
    sums: Sums
    doubted: NDArray[np.bool_]
    since_s: NDArray[np.float64]
    news: NDArray[np.bool_] | None = None
    changed: NDArray[np.bool_] | None = None


class Detector(Protocol):
    """State arrays in, verdicts out; pure."""

    @property
    def by_unit(self) -> bool:
        """Judges every tick by what arrived in it (``Arrivals``), and kernels before quarantine acts.

        Such a detector's memory holds the verdicts' ``alarm`` and ``excess`` under these names.
        """

    def initial(self, batch: int, units: int, contract: CompiledContract) -> DetectorState:
        """Memory of ``batch`` fleets with ``units`` replicas or kernels each."""

    def update(
        self, state: DetectorState, sums: Sums | None, closed: NDArray[np.bool_],
        contract: CompiledContract, arrived: Arrivals | None = None, *, consume: bool = False,
    ) -> tuple[Verdicts, DetectorState]:  # fmt: skip
        """Take in ``sums`` [B, U, S, C, 4] of the window that ends now where ``closed`` [B].

        Where ``closed`` is False, ``sums`` holds the running window so far; None: no window closes and none
        runs. Detectors ``by_unit`` read ``arrived`` instead. ``consume``: the caller gives the arrays of
        ``state`` away, so they may be written to; else they stay as they are. Verdicts last either way.
        """

    def forget(self, state: DetectorState, mask: NDArray[np.bool_]) -> DetectorState:
        """Memory without evidence and alarm where ``mask`` bool [B, U, S, C]."""

    def evidence_ratio(self, state: DetectorState, contract: CompiledContract) -> NDArray[np.float64]:
        """How near an alarm that moves traffic is, float64 [B, U, S] in 0..2: 0 nothing known, >= 1 in alarm.

        Of the clauses whose alarm moves traffic (level L2 and up, or hard) the nearest one. A detector that
        keeps no evidence between its verdicts answers with 0 and 1 (``latched``).
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowDetector:
    """Judge each completed window; collect over at most ``carry_windows`` where units are scarce.

    A hard rate clause whose limit is 0 alarms at the first unit over its threshold, before the window
    closes. An alarm on traffic ends after ``expiry_windows`` windows without a unit, since only traffic
    can tell whether it still holds. To be inside, the upper limit at ``recertify_confidence`` must be:
    the risk is a return too early, which a half-open return bounds, so it may be lower than the alarm's.
    """

    carry_windows: int = 5
    expiry_windows: int = 5
    recertify_confidence: float = 0.95

    @property
    def by_unit(self) -> bool:
        """Only sums of whole windows."""
        return False

    def initial(self, batch: int, units: int, contract: CompiledContract) -> DetectorState:
        """All quiet, nothing judged."""
        shape = (batch, units, len(contract.slices), len(contract.clause_ids))
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
        self, state: DetectorState, sums: Sums | None, closed: NDArray[np.bool_],
        contract: CompiledContract, arrived: Arrivals | None = None,  # noqa: ARG002
        *, consume: bool = False,
    ) -> tuple[Verdicts, DetectorState]:  # fmt: skip
        """Judge what is complete; see the protocol."""
        if sums is None:
            return _standing(state), state
        state, fresh = self._alarm_at_once(state, sums, contract, consume)
        if bool(closed.any()):
            state = self._close(state, sums, closed, contract, fresh, consume)
        return Verdicts(
            alarm=_flags(state, "alarm"),
            excess=_floats(state, "excess"),
            inside=_flags(state, "inside"),
            fresh=fresh,
            judged=_floats(state, "judged"),
        ), state

    def forget(self, state: DetectorState, mask: NDArray[np.bool_]) -> DetectorState:
        """See the protocol."""
        return forgotten(state, mask)

    def evidence_ratio(self, state: DetectorState, contract: CompiledContract) -> NDArray[np.float64]:
        """0 or 1: a window says nothing before it closes."""
        return latched(state, contract)

    def _alarm_at_once(
        self, state: DetectorState, sums: Sums, contract: CompiledContract, consume: bool
    ) -> tuple[DetectorState, NDArray[np.bool_]]:
        fresh = np.zeros(sums.shape[:-1], dtype=np.bool_)
        places = zero_tolerance_places(contract)
        if not places.size:
            return state, fresh
        names = (*_WINDOWS[:3], "since_alarm", "judged")
        news, louder = find_at_once(fresh, sums, places, applies(contract), *(state[name] for name in names))
        if news:
            # Verdicts last, so what they show is copied where it changes.
            state = _copied(state, (names[:2] if louder else ()) if consume else names)
            alarm_at_once(fresh, sums, places, *(state[name] for name in names))
        return state, fresh

    def _close(
        self, state: DetectorState, sums: Sums, closed: NDArray[np.bool_], contract: CompiledContract,
        fresh: NDArray[np.bool_], consume: bool,
    ) -> DetectorState:  # fmt: skip
        """Judge the windows that end; adds to ``fresh`` what is judged."""
        state = _copied(state, _WINDOWS[:2] if consume else _WINDOWS)
        speaks, hopeful = np.zeros_like(fresh), np.zeros_like(fresh)
        close_windows(
            *(state[name] for name in _WINDOWS), fresh, speaks, hopeful, sums, closed, applies(contract),
            from_traffic(contract), contract.is_rate, contract.rate_limit, contract.threshold, contract.sense,
            contract.min_samples, self.carry_windows, self.expiry_windows,
        )  # fmt: skip
        judged, since = _floats(state, "judged"), _floats(state, "since_alarm")
        beyond = significant(judged, speaks, contract, contract.alarm_confidence, above=True)
        _flags(state, "alarm")[speaks] = beyond
        _floats(state, "excess")[speaks] *= beyond
        _flags(state, "inside")[hopeful] = significant(
            since, hopeful, contract, self.recertify_confidence, above=False
        )
        return state


#: The memory of a ``WindowDetector``, in the order of ``close_windows``.
_WINDOWS = (
    "alarm", "excess", "inside", "carried", "carried_windows", "judged", "since_alarm", "silent_windows",
)  # fmt: skip


def _copied(state: DetectorState, names: Sequence[str]) -> DetectorState:
    """``state`` with copies of the arrays ``names``, which may then be written to."""
    return {**state, **{name: state[name].copy() for name in names}}


def _standing(state: DetectorState) -> Verdicts:
    """The verdicts as they were; none of them fresh."""
    alarm = _flags(state, "alarm")
    return Verdicts(
        alarm=alarm,
        excess=_floats(state, "excess"),
        inside=_flags(state, "inside"),
        fresh=np.zeros(alarm.shape, dtype=np.bool_),
        judged=_floats(state, "judged"),
    )


def forgotten(state: DetectorState, mask: NDArray[np.bool_]) -> DetectorState:
    """Every array of ``state`` back at 0 or False where ``mask`` bool [B, U, S, C]."""
    return {
        name: np.where(mask.reshape(mask.shape + (1,) * (array.ndim - 4)), array.dtype.type(0), array)
        for name, array in state.items()
    }


def latched(state: DetectorState, contract: CompiledContract) -> NDArray[np.float64]:
    """float64 [B, U, S]: 1 where a clause that moves traffic is in alarm, else 0; see the protocol."""
    alarm = _flags(state, "alarm")
    ratio = np.zeros(alarm.shape[:3])
    latch(ratio, alarm, moves_traffic(contract))
    return ratio


@lru_cache(maxsize=64)
def moves_traffic(contract: CompiledContract) -> NDArray[np.bool_]:
    """bool [C]: clauses whose alarm moves traffic; soft L1 clauses only inform."""
    return np.asarray((contract.level >= 2) | contract.hard)


def _floats(state: DetectorState, name: str) -> NDArray[np.float64]:
    return np.asarray(state[name], dtype=np.float64)


def _flags(state: DetectorState, name: str) -> NDArray[np.bool_]:
    return np.asarray(state[name], dtype=np.bool_)


@lru_cache(maxsize=64)
def applies(contract: CompiledContract) -> NDArray[np.bool_]:
    """bool [S, C]: the clause is judged on the slice, online."""
    return np.ascontiguousarray(contract.applies.T & (contract.source != Source.OFFLINE))


@lru_cache(maxsize=64)
def probe_clauses(contract: CompiledContract) -> NDArray[np.int64]:
    """int64: places of the clauses that probes give units to."""
    return np.flatnonzero(contract.source == Source.PROBE)


@lru_cache(maxsize=64)
def from_traffic(contract: CompiledContract) -> NDArray[np.bool_]:
    """bool [C]: only served traffic gives units, so without traffic there is no evidence."""
    return np.asarray((contract.source == Source.LATENCY) | (contract.source == Source.FAILED))


@lru_cache(maxsize=64)
def zero_tolerance(contract: CompiledContract) -> NDArray[np.bool_]:
    """bool [C]: a hard rate clause with limit 0, where one unit over the threshold is an alarm."""
    return contract.hard & contract.is_rate & (contract.rate_limit <= 0.0)


@lru_cache(maxsize=64)
def zero_tolerance_places(contract: CompiledContract) -> NDArray[np.int64]:
    """int64: places of the clauses of ``zero_tolerance``."""
    return np.flatnonzero(zero_tolerance(contract))


def relative_excess(sums: Sums, contract: CompiledContract) -> NDArray[np.float64]:
    """How far the point estimate lies beyond the limit, as a share of the limit; negative inside.

    A limit of 0 has no relative scale: there the excess is absolute.
    """
    count = np.maximum(sums[..., COUNT], 1.0)
    rate = sums[..., OVER] / count - contract.rate_limit
    mean = contract.sense * (sums[..., TOTAL] / count - contract.threshold)
    limit = np.where(contract.is_rate, contract.rate_limit, np.abs(contract.threshold))
    distance = np.where(contract.is_rate, rate, mean)
    return np.asarray(distance / np.where(limit > 0.0, limit, 1.0), dtype=np.float64)


def beyond_limit(
    sums: Sums, ready: NDArray[np.bool_], contract: CompiledContract
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Where the lower confidence limit lies beyond the clause's limit, and the excess there (else 0)."""
    excess = relative_excess(sums, contract)
    beyond = ready & (excess > 0.0)
    beyond[beyond] = significant(sums, beyond, contract, contract.alarm_confidence, above=True)
    return beyond, np.where(beyond, excess, 0.0)


def significant(
    sums: Sums, cells: NDArray[np.bool_], contract: CompiledContract, confidence: float, *, above: bool
) -> NDArray[np.bool_]:
    """Of the ``cells`` bool [B, U, S, C], in their order: the one-sided limit lies beyond the clause's.

    ``above``: the lower limit lies beyond; else the upper limit lies inside.
    """
    clause = np.nonzero(cells)[-1]
    picked = sums[cells]
    rate = contract.is_rate[clause]
    answer = np.zeros(len(clause), dtype=np.bool_)
    answer[rate] = _rate_significant(picked[rate], contract.rate_limit[clause[rate]], confidence, above)
    mean = ~rate
    answer[mean] = _mean_significant(picked[mean], clause[mean], contract, confidence, above)
    return answer


def _rate_significant(
    sums: Sums, limit: NDArray[np.float64], confidence: float, above: bool
) -> NDArray[np.bool_]:
    """Exact binomial test: P(X >= x) or P(X <= x) at rate ``limit`` is below 1 - confidence."""
    count, over = sums[..., COUNT], sums[..., OVER]
    alpha = 1.0 - confidence
    if above:
        tail = special.betainc(np.maximum(over, 1.0), np.maximum(count - over, 0.0) + 1.0, limit)
        return np.asarray((tail < alpha) & (over > 0.0), dtype=np.bool_)
    tail = (1.0 - limit) ** count  # none over: the most frequent case has a closed form
    some = over > 0.0
    tail[some] = special.betainc(np.maximum(count - over, 1e-9)[some], over[some] + 1.0, 1.0 - limit[some])
    return np.asarray(np.where(limit > 0.0, tail < alpha, over <= 0.0), dtype=np.bool_)


def _mean_significant(
    sums: Sums, clause: NDArray[np.int64], contract: CompiledContract, confidence: float, above: bool
) -> NDArray[np.bool_]:
    """One-sided t limit of the mean on the side that ``above`` asks for."""
    count = sums[..., COUNT]
    mean = sums[..., TOTAL] / count
    variance = (
        np.maximum(sums[..., SQUARES] / count - mean * mean, 0.0) * count / np.maximum(count - 1.0, 1.0)
    )
    reach = _t_quantile(np.maximum(count - 1.0, 1.0), confidence) * np.sqrt(variance / count)
    distance = contract.sense[clause] * (mean - contract.threshold[clause])
    enough = count >= 2.0
    return np.asarray(
        enough & ((distance - reach > 0.0) if above else (distance + reach <= 0.0)), dtype=np.bool_
    )


def _t_quantile(freedom: NDArray[np.float64], confidence: float) -> NDArray[np.float64]:
    """Student's t quantile for whole degrees of freedom >= 1, from a table where it reaches."""
    table = _t_table(confidence)
    quantile = table[np.minimum(freedom, len(table) - 1).astype(np.int64)]
    beyond = freedom >= len(table)
    if bool(beyond.any()):
        quantile[beyond] = special.stdtrit(freedom[beyond], confidence)
    return quantile


@lru_cache(maxsize=16)
def _t_table(confidence: float) -> NDArray[np.float64]:
    """Quantiles by degrees of freedom; entry 0 repeats entry 1."""
    return np.asarray(special.stdtrit(np.maximum(np.arange(1024.0), 1.0), confidence))
