"""Writes down what was true in every interval, for scoring alone; nothing here reaches a controller."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from contracts.episode import EpisodeRecord, Incident
from contracts.telemetry import ReplicaState
from faults.catalogue import CATALOGUE, Channel
from faults.effects import ReplicaEffect
from faults.schedule import acts
from simulator.board import ReplicaBoard
from simulator.engine_columns import (
    ANSWERED,
    CELL_COLUMNS,
    DISPATCHED,
    EXPOSED,
    EXPOSED_IN_FLIGHT,
    FIRST_REASON,
    OFFERED,
    OFFERED_TOKENS,
    SHED_COUNT,
    SLICE_COLUMNS,
    SLO_MISSED,
    TOKENS,
)
from simulator.engine_records import Counters
from simulator.probes import Probes
from simulator.truth import numeric_or_observability, runtime
from simulator.world import CompiledScenario


class Recorder:
    """Truth and record of B fleets over T ticks; record arrays are ``[B, T, ...]``."""

    def __init__(self, scenario: CompiledScenario, seeds: list[int]) -> None:
        kernels, slices, replicas = scenario.layout.shape
        batch, ticks = len(seeds), scenario.ticks
        self._scenario, self._seeds = scenario, seeds
        self._verdicts: dict[tuple[int, ReplicaEffect], tuple[NDArray[np.bool_], NDArray[np.bool_]]] = {}
        self.now_violating = np.zeros((batch, replicas, slices), dtype=np.bool_)
        self._now_runtime = np.zeros((batch, replicas, slices), dtype=np.bool_)
        by_slice, by_kernel = (batch, ticks, slices), (batch, ticks, kernels)
        self._table = np.zeros((*by_slice, kernels + 1), dtype=np.float32)
        self._rotation = np.zeros((batch, ticks, replicas), dtype=np.bool_)
        self._quarantined = np.zeros((batch, ticks, replicas), dtype=np.bool_)
        self._violating = np.zeros((batch, ticks, replicas, slices), dtype=np.bool_)
        self._runtime = np.zeros((batch, ticks, replicas, slices), dtype=np.bool_)
        self._counts = np.zeros((7, *by_slice), dtype=np.int64)
        self._answered_by = np.zeros((batch, ticks, replicas, slices), dtype=np.int64)
        self._tokens = np.zeros((3, *by_slice))
        self._accelerator_s = np.zeros(by_kernel)
        self._probe_tokens = np.zeros(by_kernel)
        self._capacity_move = np.zeros((batch, ticks), dtype=np.bool_)
        self._dispatched = np.zeros((batch, ticks, replicas, slices), dtype=np.int64)
        self._capacity_rows = np.zeros(by_slice, dtype=np.bool_)
        self._forbidden = np.zeros((*by_slice, kernels), dtype=np.bool_)
        self._blind = np.zeros((batch, ticks, replicas), dtype=np.bool_)
        for fleet in range(batch):
            for replica in range(replicas):
                self.judge(fleet, replica, ReplicaEffect(), tick=0, at_s=0.0)

    def judge(self, fleet: int, replica: int, effect: ReplicaEffect, tick: int, at_s: float) -> None:
        """From ``at_s`` on the replica's true state is ``effect``; ``tick`` is the interval that runs."""
        kernel = int(self._scenario.layout.replica_kernel[replica])
        key = kernel, effect
        if key not in self._verdicts:
            silent = numeric_or_observability(self._scenario, kernel, effect)
            self._verdicts[key] = silent, runtime(self._scenario, kernel, effect)
        self.now_violating[fleet, replica], self._now_runtime[fleet, replica] = self._verdicts[key]
        # An interval is open at its start: what ends at that very instant was not true in it.
        before = at_s > tick * self._scenario.tick_s
        row = fleet, tick, replica
        self._violating[row] = (before & self._violating[row]) | self.now_violating[fleet, replica]
        self._runtime[row] = (before & self._runtime[row]) | self._now_runtime[fleet, replica]

    def open(
        self,
        tick: int,
        table: NDArray[np.float64],
        in_rotation: NDArray[np.bool_],
        planned: NDArray[np.bool_],
        capacity_move: NDArray[np.bool_],
        forbidden: NDArray[np.bool_] | None = None,
        capacity_rows: NDArray[np.bool_] | None = None,
    ) -> None:
        """What is in force when ``tick`` begins; ``planned`` bool [B, R] is the controller's own rotation."""
        self._table[:, tick] = table
        self._rotation[:, tick] = in_rotation
        self._quarantined[:, tick] = ~planned
        self._capacity_move[:, tick] = capacity_move
        if forbidden is not None:
            self._forbidden[:, tick] = forbidden
        self._capacity_rows[:, tick] = capacity_move[:, None] if capacity_rows is None else capacity_rows
        self._violating[:, tick] |= self.now_violating
        self._runtime[:, tick] |= self._now_runtime

    def close(self, tick: int, counters: Counters, board: ReplicaBoard, probes: Probes) -> None:
        """What happened in ``tick``."""
        _write(
            tick, counters.cells, counters.per_slice, counters.excess_tv_tokens, self._counts,
            self._answered_by, self._dispatched, self._tokens,
        )  # fmt: skip
        _hold(
            tick,
            self._scenario.tick_s,
            board.state,
            self._scenario.layout.replica_kernel,
            self._accelerator_s,
        )
        self._probe_tokens[:, tick] = probes.tokens()
        self._blind[:, tick] = board.telemetry_lost

    def records(self, policy: str) -> list[EpisodeRecord]:
        """One record per fleet, in the order of the seeds."""
        return [self._record(fleet, policy) for fleet in range(len(self._seeds))]

    def _record(self, fleet: int, policy: str) -> EpisodeRecord:
        scenario, seed = self._scenario, self._seeds[fleet]
        counts, tokens = self._counts[:, fleet], self._tokens[:, fleet]
        return EpisodeRecord(
            run_id=f"{scenario.name}/{policy}/{seed}",
            scenario=scenario.name,
            policy=policy,
            seed=seed,
            tick_s=scenario.tick_s,
            horizon_s=scenario.horizon_s,
            kernels=scenario.layout.kernels,
            known_good=scenario.layout.known_good,
            slices=scenario.layout.slices,
            replicas=scenario.layout.replicas,
            replica_kernel=scenario.layout.replica_kernel,
            hard_slices=scenario.engine.hard_slices,
            incident=incident_of(scenario),
            table=self._table[fleet],
            in_rotation=self._rotation[fleet],
            quarantined=self._quarantined[fleet],
            violating=self._violating[fleet],
            runtime_violating=self._runtime[fleet],
            offered=counts[0],
            answered=counts[1],
            failed=counts[2],
            shed=counts[3],
            slo_missed=counts[4],
            exposed=counts[5],
            exposed_in_flight=counts[6],
            answered_by=self._answered_by[fleet],
            offered_tokens=tokens[0],
            answered_tokens=tokens[1],
            excess_tv_tokens=tokens[2],
            accelerator_s=self._accelerator_s[fleet],
            probe_tokens=self._probe_tokens[fleet],
            capacity_move=self._capacity_move[fleet],
            evidence_s=evidence_of(scenario),
            blind=self._blind[fleet],
            dispatched=self._dispatched[fleet],
            forbidden=self._forbidden[fleet],
            capacity_rows=self._capacity_rows[fleet],
        )


def evidence_of(scenario: CompiledScenario) -> float:
    """Seconds between two units of a replica's evidence: probes where some fault is numeric, else scrapes."""
    seen = scenario.telemetry
    numeric = any(CATALOGUE[plan.kind].channel is Channel.NUMERIC for plan in scenario.plans if acts(plan))
    if not numeric:
        return float(seen.scrape_interval_s)
    return 1.0 / seen.probes_per_s if seen.probes_per_s > 0.0 else math.nan


_ABSENT = int(ReplicaState.ABSENT)


@njit(cache=True)
def _write(  # type: ignore[no-untyped-def]  # pragma: no cover
    tick, cells, per_slice, excess_tv_tokens, counts, answered_by, dispatched, tokens
):  # fmt: skip
    """Enter the counters of ``tick``; row f of ``counts`` is field f of the record, from offered on."""
    batch, replicas, slices, _ = cells.shape
    for b in range(batch):
        for s in range(slices):
            counts[0, b, tick, s] = per_slice[b, s, OFFERED]
            counts[3, b, tick, s] = per_slice[b, s, SHED_COUNT]
            counts[2, b, tick, s] = per_slice[b, s, FIRST_REASON:].sum()
            tokens[0, b, tick, s] = per_slice[b, s, OFFERED_TOKENS]
            tokens[2, b, tick, s] = excess_tv_tokens[b, s]
            for r in range(replicas):
                answered_by[b, tick, r, s] = cells[b, r, s, ANSWERED]
                dispatched[b, tick, r, s] = cells[b, r, s, DISPATCHED]
                counts[1, b, tick, s] += cells[b, r, s, ANSWERED]
                counts[4, b, tick, s] += cells[b, r, s, SLO_MISSED]
                counts[5, b, tick, s] += cells[b, r, s, EXPOSED]
                counts[6, b, tick, s] += cells[b, r, s, EXPOSED_IN_FLIGHT]
                tokens[1, b, tick, s] += cells[b, r, s, TOKENS]


@njit(cache=True)
def _hold(tick, tick_s, state, owner, accelerator_s):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Replicas that are there hold their accelerator for all of ``tick``."""
    held = np.zeros(accelerator_s.shape[2], dtype=np.int64)
    for b in range(state.shape[0]):
        held[:] = 0
        for r in range(state.shape[1]):
            held[owner[r]] += state[b, r] != _ABSENT
        for k in range(held.shape[0]):
            accelerator_s[b, tick, k] = held[k] * tick_s


def warm() -> None:
    """Compile what this module compiles, so that no job pays for it after a fork."""
    for batch in (1, 2):
        one = batch, 1, 1
        cells, per_slice = (
            np.zeros((*one, CELL_COLUMNS), np.int64),
            np.zeros((batch, 1, SLICE_COLUMNS), np.int64),
        )
        _write(
            0, cells, per_slice, np.zeros((batch, 1)), np.zeros((7, *one), np.int64),
            np.zeros((*one, 1), np.int64), np.zeros((*one, 1), np.int64), np.zeros((3, *one)),
        )  # fmt: skip
        _hold(0, 1.0, np.zeros((batch, 1), np.int8), np.zeros(1, np.int64), np.zeros(one))


def incident_of(scenario: CompiledScenario) -> Incident | None:
    """The one incident of a scenario: from the first onset to the last end of its acting faults."""
    plans = [plan for plan in scenario.plans if acts(plan)]
    surges = [surge for surge in scenario.surges if surge.is_fault]
    if not plans and not surges:
        return None
    return Incident(
        fault="+".join([plan.name for plan in plans] + [surge.name for surge in surges]),
        onset_s=min([plan.onset_s for plan in plans] + [surge.at_s for surge in surges]),
        ends_s=max([plan.ends_s for plan in plans] + [surge.ends_s for surge in surges]),
        period_s=max((plan.period_s for plan in plans), default=0.0),
        silent=not surges and all(CATALOGUE[plan.kind].silent for plan in plans),
    )
