"""Observations of a live drill as the ``EpisodeRecord`` that E5 scores.

Requests are those of the drill's own load, as its clients saw them. Table and rotation are what the gateway
reports each second; the reasons of moves come from the controller's log. Contract violations are known
because their faults were injected and verified.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import FleetLayout
from contracts.documents import ContractSpec
from contracts.scoring.episode import EpisodeRecord, Incident
from contracts.telemetry import ReplicaState
from contracts.units import MS_PER_S
from faults.catalogue import CATALOGUE
from faults.drill.plan import TICK_S, DrillPlan, Strike
from live.drill.promises import SHED, broken_to_clients, is_late
from live.load import LoadRecord
from live.ports import HostCounters, LiveReplica


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One replica under one fault. kl_nats: measured on it; 0 without a measurement."""

    strike: Strike
    replica: int
    slices: NDArray[np.bool_]  # [S] slices on which it breaks the contract
    silent: bool
    tv_ratio: float  # bound on the total variation of an answered token
    from_at_s: float
    to_at_s: float = np.inf
    by_clients: NDArray[np.bool_] | None = None
    """[S] slices on which late answers break the contract too; None: latency is not judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """State of gateway and discovery in one second."""

    table: NDArray[np.float32]  # [S, K + 1]
    in_rotation: NDArray[np.bool_]  # [R]
    ready: NDArray[np.bool_]  # [R]
    for_capacity: NDArray[np.bool_]  # [S], the newest move was for capacity alone, as far as reported


@dataclass(slots=True)
class Frame:
    """The axes and constants of a drill's record, and its contract."""

    plan: DrillPlan
    layout: FleetLayout
    contract: ContractSpec
    policy: str
    seed: int
    homes: tuple[str, ...]
    damages: list[Damage] = field(default_factory=list)


def second_of(
    frame: Frame, hosts: tuple[HostCounters, ...], replicas: tuple[LiveReplica, ...], last: Second | None
) -> Second:
    """The ``Second`` of one tick. Without counters of the gateway, the ``last`` table or the home table is
    used.

    The gateway does not know the reasons of moves, so no move is marked as for capacity.
    """
    layout = frame.layout
    no_slice = np.zeros(len(layout.slices), dtype=np.bool_)
    names, ready = layout.replicas, np.zeros(len(layout.replicas), dtype=np.bool_)
    for one in replicas:
        ready[names.index(one.name)] = one.state == ReplicaState.READY
    if not hosts and last is not None:
        return replace(last, in_rotation=last.in_rotation & ready, ready=ready)
    weights = np.zeros((len(layout.slices), len(names)))
    for host in hosts:
        if host.replica in names and host.slice in layout.slices:
            weights[layout.slices.index(host.slice), names.index(host.replica)] = host.weight
    table = np.zeros((len(layout.slices), len(layout.kernels) + 1), dtype=np.float32)
    for row, slice_weights in enumerate(weights):
        shares = np.bincount(layout.replica_kernel, slice_weights, len(layout.kernels))
        home = np.eye(len(layout.kernels))[layout.kernels.index(frame.homes[row])]
        table[row, :-1] = shares / shares.sum() if shares.sum() > 0 else home
    listed = weights.any(axis=0)
    used = np.isin(layout.replica_kernel, layout.replica_kernel[listed])
    return Second(table=table, in_rotation=ready & (listed | ~used), ready=ready, for_capacity=no_slice)


def episode_of(
    frame: Frame, seconds: list[Second], requests: list[LoadRecord], began_at_s: float
) -> EpisodeRecord:
    """The record up to now; ``began_at_s``: start of the drill on the clock of ``requests``."""
    frame, layout = replace(frame, damages=_judged(frame, requests, began_at_s)), frame.layout
    shape = ticks, _ = len(seconds), len(layout.slices)
    counts: dict[str, NDArray[Any]] = {
        name: np.zeros(shape, dtype=np.int64)
        for name in ("offered", "answered", "failed", "shed", "slo_missed", "exposed", "exposed_in_flight")
    }
    tokens: dict[str, NDArray[Any]] = {
        name: np.zeros(shape)
        for name in ("offered_tokens", "answered_tokens", "excess_tv_tokens", "useful_tokens")
    }
    by: dict[str, NDArray[Any]] = {
        name: np.zeros((ticks, len(layout.replicas), shape[1]), np.int64)
        for name in ("answered_by", "dispatched")
    }
    rows = _Rows(frame=frame, counts=counts, tokens=tokens, by=by, began_at_s=began_at_s, ticks=ticks)
    for request in requests:
        rows.enter(request)
    return EpisodeRecord(
        run_id=f"{frame.plan.name}/{frame.policy}/{frame.seed}",
        scenario=frame.plan.name,
        policy=frame.policy,
        seed=frame.seed,
        tick_s=TICK_S,
        horizon_s=ticks * TICK_S,
        kernels=layout.kernels,
        known_good=layout.known_good,
        slices=layout.slices,
        replicas=layout.replicas,
        replica_kernel=layout.replica_kernel,
        hard_slices=hard_slices(frame),
        incident=_incident(frame, ticks * TICK_S),
        evidence_interval_s=float("nan"),
        **_in_force(frame, seconds),
        **counts,
        **tokens,
        **by,
    )


def _judged(frame: Frame, requests: list[LoadRecord], began_at_s: float) -> list[Damage]:
    """The damages, with the slices added on which clients of a slowed replica saw an SLO missed."""
    found = []
    for one in frame.damages:
        name, broken = frame.layout.replicas[one.replica], one.slices
        if one.by_clients is not None:
            mine = [asked for asked in requests if asked.replica == name]
            struck = [r for r in mine if one.from_at_s <= r.started_at_s - began_at_s < one.to_at_s]
            seen = broken_to_clients(frame.contract, frame.layout.slices, struck)
            broken = broken | (seen & one.by_clients)
        found.append(replace(one, slices=broken))
    return found


def _in_force(frame: Frame, seconds: list[Second]) -> dict[str, Any]:
    """Table, rotation and truth of every tick; what a live drill does not know is zero."""
    replicas, kernels = len(frame.layout.replicas), len(frame.layout.kernels)
    shape = ticks, _ = len(seconds), len(frame.layout.slices)
    broken = _broken(frame, ticks)
    table = np.zeros((*shape, kernels + 1), dtype=np.float32)
    for row, one in enumerate(seconds):
        table[row] = one.table
    return {
        "table": table,
        "in_rotation": _stack([one.in_rotation for one in seconds], replicas),
        "quarantined": _stack([one.ready & ~one.in_rotation for one in seconds], replicas),
        "capacity_rows": _stack([one.for_capacity for one in seconds], shape[1]),
        "forbidden": np.zeros((*shape, kernels), dtype=np.bool_),
        "violating": broken[0],
        "runtime_violating": broken[1],
        "accelerator_s": np.zeros((ticks, kernels)),
        "probe_tokens": np.zeros((ticks, kernels)),
        "blind": np.zeros((ticks, replicas), dtype=np.bool_),
    }


def hard_slices(frame: Frame) -> NDArray[np.bool_]:
    """Bool [S]: slices with a clause of zero budget."""
    hard = [clause.slices for clause in frame.contract.clauses if clause.budget == 0.0]
    return np.array(
        [any(named is None or name in named for named in hard) for name in frame.layout.slices],
        dtype=np.bool_,
    )


@dataclass(slots=True, kw_only=True)
class _Rows:
    """Counts per tick, filled request by request."""

    frame: Frame
    counts: dict[str, NDArray[Any]]  # each [T, S]
    tokens: dict[str, NDArray[Any]]  # each [T, S]
    by: dict[str, NDArray[Any]]  # each [T, R, S]
    began_at_s: float
    ticks: int

    def enter(self, request: LoadRecord) -> None:
        """Count one request: offered when it arrived, everything else when it ended."""
        layout = self.frame.layout
        s = layout.slices.index(request.slice)
        came_at_s = request.started_at_s - self.began_at_s
        came, ended = self._tick(came_at_s), self._tick(came_at_s + request.duration_ms / MS_PER_S)
        length = float(self.frame.plan.load.answer_tokens)
        self.counts["offered"][came, s] += came < self.ticks
        if came < self.ticks:
            self.tokens["offered_tokens"][came, s] += length
        r = layout.replicas.index(request.replica) if request.replica in layout.replicas else -1
        if r >= 0:
            self.by["dispatched"][came, r, s] += 1
        if not request.complete:
            self.counts["shed" if request.status == SHED else "failed"][ended, s] += 1
            return
        name = layout.slices[s]
        slow = is_late(request, next(one for one in self.frame.contract.slices if one.name == name))
        self.counts["answered"][ended, s] += 1
        self.counts["slo_missed"][ended, s] += slow
        self.tokens["answered_tokens"][ended, s] += length
        if r >= 0:
            self.by["answered_by"][ended, r, s] += 1
        self._judge(request.replica, s, came_at_s, (ended, length, slow))

    def _judge(self, replica: str, s: int, came_at_s: float, answer: tuple[int, float, bool]) -> None:
        """Value of an answer: less if a fault was in force on its replica when it arrived."""
        ended, length, slow = answer
        names = self.frame.layout.replicas
        hurt = [
            one
            for one in self.frame.damages
            if names[one.replica] == replica and one.slices[s] and one.from_at_s <= came_at_s < one.to_at_s
        ]
        loss = max((one.tv_ratio for one in hurt), default=0.0)
        exposed = any(one.silent for one in hurt) and bool(hard_slices(self.frame)[s])
        self.tokens["excess_tv_tokens"][ended, s] += length * loss
        self.counts["exposed"][ended, s] += exposed
        self.tokens["useful_tokens"][ended, s] += 0.0 if slow or exposed else length * (1.0 - loss)

    def _tick(self, at_s: float) -> int:
        return min(max(int(at_s / TICK_S), 0), self.ticks - 1)


def _broken(frame: Frame, ticks: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    shape = (ticks, len(frame.layout.replicas), len(frame.layout.slices))
    found = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
    for one in frame.damages:
        last = ticks if np.isinf(one.to_at_s) else min(ticks, int(np.ceil(one.to_at_s / TICK_S)))
        found[0 if one.silent else 1][int(one.from_at_s / TICK_S) : last, one.replica] |= one.slices
    return found


def _incident(frame: Frame, horizon_s: float) -> Incident | None:
    if not frame.damages:
        return None
    strikes = [one.strike for one in frame.damages]
    periods = [one.fault.intermittent.period_s for one in strikes if one.fault.intermittent]
    return Incident(
        fault="+".join(dict.fromkeys(one.fault.name for one in strikes)),
        onset_at_s=min(one.from_at_s for one in frame.damages),
        ends_at_s=min(horizon_s, max(one.to_at_s for one in frame.damages)),
        period_s=max(periods, default=0.0),
        silent=all(CATALOGUE[one.fault.kind].silent for one in strikes),
    )


def _stack(rows: list[NDArray[np.bool_]], width: int) -> NDArray[np.bool_]:
    return np.stack(rows) if rows else np.zeros((0, width), dtype=np.bool_)
