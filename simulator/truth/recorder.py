"""Records the ground truth of every interval, for scoring alone; a controller receives none of it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled
from contracts.scoring.episode import EpisodeRecord
from contracts.telemetry import ReplicaState
from controller.ports import RoutingPlan
from faults.effects import ReplicaEffect
from simulator.engine import counters as column
from simulator.engine.counters import Counters
from simulator.truth.scenario import evidence_interval_s, healthy_loss, incident_of, most_rps, record_facts
from simulator.truth.violations import Violations
from simulator.world.board import ReplicaBoard
from simulator.world.compiled_scenario import CompiledScenario

_ABSENT = int(ReplicaState.ABSENT)


class CountsProbes(Protocol):
    """Counts the tokens and time that probes cost."""

    def tokens(self) -> NDArray[np.float64]:
        """Probe tokens that the replicas of each kernel computed in the open tick, float64 [B, K]."""


class TruthListener(Protocol):
    """Receives the ground truth of B fleets, row by row, and may keep it."""

    @property
    def exposing(self) -> NDArray[np.bool_]:
        """[B, R, S]: the replica now breaks a clause of the families N, S or O that moves traffic."""

    def judge(self, fleet: int, replica: int, effect: ReplicaEffect, tick: int, at_s: float) -> None:
        """Set the replica's true state to ``effect`` from ``at_s`` on; ``tick``: the running interval."""

    def open(
        self, tick: int, plan: RoutingPlan, in_rotation: NDArray[np.bool_], capacity_move: NDArray[np.bool_]
    ) -> None:
        """Record what is in force when ``tick`` begins; ``in_rotation`` bool [B, R]: of ``plan``,
        and ready.
        """

    def close(self, tick: int, counters: Counters, board: ReplicaBoard, probes: CountsProbes) -> None:
        """Record what happened in ``tick``."""

    def records(self, policy: str) -> list[EpisodeRecord]:
        """One record per fleet."""


class Rows(NamedTuple):
    """Rows of the record, named and shaped as in ``EpisodeRecord`` after [B, T]."""

    table: NDArray[np.float32]  # [B, T, S, K + 1]
    in_rotation: NDArray[np.bool_]  # [B, T, R]
    quarantined: NDArray[np.bool_]  # [B, T, R]
    capacity_rows: NDArray[np.bool_]  # [B, T, S]
    forbidden: NDArray[np.bool_]  # [B, T, S, K]
    violating: NDArray[np.bool_]  # [B, T, R, S]
    runtime_violating: NDArray[np.bool_]  # [B, T, R, S]
    offered: NDArray[np.int64]  # [B, T, S]
    answered: NDArray[np.int64]  # [B, T, S]
    failed: NDArray[np.int64]  # [B, T, S]
    shed: NDArray[np.int64]  # [B, T, S]
    slo_missed: NDArray[np.int64]  # [B, T, S]
    exposed: NDArray[np.int64]  # [B, T, S]
    exposed_in_flight: NDArray[np.int64]  # [B, T, S]
    answered_by: NDArray[np.int64]  # [B, T, R, S]
    dispatched: NDArray[np.int64]  # [B, T, R, S]
    offered_tokens: NDArray[np.float64]  # [B, T, S]
    answered_tokens: NDArray[np.float64]  # [B, T, S]
    excess_tv_tokens: NDArray[np.float64]  # [B, T, S]
    useful_tokens: NDArray[np.float64]  # [B, T, S]
    accelerator_s: NDArray[np.float64]  # [B, T, K]
    probe_tokens: NDArray[np.float64]  # [B, T, K]
    blind: NDArray[np.bool_]  # [B, T, R]


def _empty_rows(shape: tuple[int, int, int], batch: int, ticks: int) -> Rows:
    kernels, slices, replicas = shape

    def zeros(kind: Any, *rest: int) -> NDArray[Any]:
        return np.zeros((batch, ticks, *rest), dtype=kind)

    count, flag, number = np.int64, np.bool_, np.float64
    return Rows(
        table=zeros(np.float32, slices, kernels + 1),
        in_rotation=zeros(flag, replicas),
        quarantined=zeros(flag, replicas),
        capacity_rows=zeros(flag, slices),
        forbidden=zeros(flag, slices, kernels),
        violating=zeros(flag, replicas, slices),
        runtime_violating=zeros(flag, replicas, slices),
        offered=zeros(count, slices),
        answered=zeros(count, slices),
        failed=zeros(count, slices),
        shed=zeros(count, slices),
        slo_missed=zeros(count, slices),
        exposed=zeros(count, slices),
        exposed_in_flight=zeros(count, slices),
        answered_by=zeros(count, replicas, slices),
        dispatched=zeros(count, replicas, slices),
        offered_tokens=zeros(number, slices),
        answered_tokens=zeros(number, slices),
        excess_tv_tokens=zeros(number, slices),
        useful_tokens=zeros(number, slices),
        accelerator_s=zeros(number, kernels),
        probe_tokens=zeros(number, kernels),
        blind=zeros(flag, replicas),
    )


class TruthRecorder:
    """Ground truth and record of B fleets over T ticks."""

    def __init__(self, scenario: CompiledScenario, seeds: list[int]) -> None:
        self._scenario, self._seeds = scenario, seeds
        self._rows = _empty_rows(scenario.layout.shape, len(seeds), scenario.ticks)
        self._now = Violations(scenario, len(seeds))

    @property
    def exposing(self) -> NDArray[np.bool_]:
        """[B, R, S]: the replica now breaks a clause of the families N, S or O that moves traffic."""
        return self._now.exposing

    def judge(self, fleet: int, replica: int, effect: ReplicaEffect, tick: int, at_s: float) -> None:
        """Set the replica's true state to ``effect`` from ``at_s`` on; ``tick``: the running interval."""
        self._now.note(fleet, replica, effect)
        # An interval is open at its start: a state that ends at that very instant was not true in it.
        before = at_s > tick * self._scenario.tick_s
        row, rows = (fleet, tick, replica), self._rows
        rows.violating[row] = (before & rows.violating[row]) | self._now.silent[fleet, replica]
        rows.runtime_violating[row] = (before & rows.runtime_violating[row]) | self._now.runtime[
            fleet, replica
        ]

    def open(
        self, tick: int, plan: RoutingPlan, in_rotation: NDArray[np.bool_], capacity_move: NDArray[np.bool_]
    ) -> None:
        """Record what is in force when ``tick`` begins; ``in_rotation`` bool [B, R]: of ``plan``,
        and ready.
        """
        rows, moved = self._rows, plan.capacity_rows
        rows.table[:, tick] = plan.table
        rows.in_rotation[:, tick] = in_rotation
        rows.quarantined[:, tick] = ~plan.in_rotation
        if plan.forbidden is not None:
            rows.forbidden[:, tick] = plan.forbidden
        rows.capacity_rows[:, tick] = capacity_move[:, None] if moved is None else moved
        rows.violating[:, tick] |= self._now.silent
        rows.runtime_violating[:, tick] |= self._now.runtime

    def close(self, tick: int, counters: Counters, board: ReplicaBoard, probes: CountsProbes) -> None:
        """Record what happened in ``tick``."""
        rows, scenario = self._rows, self._scenario
        tokens = counters.excess_tv_tokens, counters.useful_tokens
        _write(tick, counters.cells, counters.per_slice, tokens, rows)
        _hold(tick, scenario.tick_s, board.state, scenario.layout.replica_kernel, rows.accelerator_s)
        rows.probe_tokens[:, tick] = probes.tokens()
        rows.blind[:, tick] = board.telemetry_lost

    def records(self, policy: str) -> list[EpisodeRecord]:
        """One record per fleet, in the order of the seeds."""
        return [self._record(fleet, policy) for fleet in range(len(self._seeds))]

    def _record(self, fleet: int, policy: str) -> EpisodeRecord:
        scenario, seed = self._scenario, self._seeds[fleet]
        rows: dict[str, Any] = {name: array[fleet] for name, array in self._rows._asdict().items()}
        return EpisodeRecord(
            **record_facts(scenario, policy, seed),
            incident=incident_of(scenario),
            evidence_interval_s=evidence_interval_s(scenario),
            most_rps=most_rps(scenario),
            healthy_loss=healthy_loss(scenario),
            **rows,
        )


@compiled
def _write(tick, cells, per_slice, tokens, rows):
    """Enter the counters of ``tick`` into ``rows``; ``tokens``: excess TV and useful tokens, [B, S]."""
    excess_tv_tokens, useful_tokens = tokens
    batch, replicas, slices, _ = cells.shape
    for b in range(batch):
        for s in range(slices):
            rows.offered[b, tick, s] = per_slice[b, s, column.OFFERED]
            rows.shed[b, tick, s] = per_slice[b, s, column.SHED_COUNT]
            rows.failed[b, tick, s] = per_slice[b, s, column.FIRST_REASON :].sum()
            rows.offered_tokens[b, tick, s] = per_slice[b, s, column.OFFERED_TOKENS]
            rows.excess_tv_tokens[b, tick, s] = excess_tv_tokens[b, s]
            rows.useful_tokens[b, tick, s] = useful_tokens[b, s]
            for r in range(replicas):
                rows.answered_by[b, tick, r, s] = cells[b, r, s, column.ANSWERED]
                rows.dispatched[b, tick, r, s] = cells[b, r, s, column.DISPATCHED]
                rows.answered[b, tick, s] += cells[b, r, s, column.ANSWERED]
                rows.slo_missed[b, tick, s] += cells[b, r, s, column.SLO_MISSED]
                rows.exposed[b, tick, s] += cells[b, r, s, column.EXPOSED]
                rows.exposed_in_flight[b, tick, s] += cells[b, r, s, column.EXPOSED_IN_FLIGHT]
                rows.answered_tokens[b, tick, s] += cells[b, r, s, column.TOKENS]


@compiled
def _hold(tick, tick_s, state, owner, accelerator_s):
    """Replicas that exist hold their accelerator for all of ``tick``."""
    held = np.zeros(accelerator_s.shape[2], dtype=np.int64)
    for b in range(state.shape[0]):
        held[:] = 0
        for r in range(state.shape[1]):
            held[owner[r]] += state[b, r] != _ABSENT
        for k in range(held.shape[0]):
            accelerator_s[b, tick, k] = held[k] * tick_s


def warm() -> None:
    """Compile this module's functions before work is forked."""
    for batch in (1, 2):
        rows, state = _empty_rows((1, 1, 1), batch, 1), np.zeros((batch, 1), np.int8)
        cells = np.zeros((batch, 1, 1, column.CELL_COLUMNS), np.int64)
        per_slice = np.zeros((batch, 1, column.SLICE_COLUMNS), np.int64)
        _write(0, cells, per_slice, (np.zeros((batch, 1)), np.zeros((batch, 1))), rows)
        _hold(0, 1.0, state, np.zeros(1, np.int64), rows.accelerator_s)
