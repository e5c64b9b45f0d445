"""The state of a controller before its first tick."""

from __future__ import annotations

from typing import Any

import numpy as np

from controller.detect.bounds import initial_bounds
from controller.detect.certified_drift import initial_drift
from controller.judge.kernels.at_rest import broken_at_rest
from controller.judge.replicas.attempts_pass import COLUMNS
from controller.judge.replicas.hang import initial_hang
from controller.options import ControllerSetup
from controller.perceive.capacity_pass import UNBOUNDED_RPS
from controller.perceive.identity import ENOUGH
from controller.perceive.on_the_way_pass import BLOCK_COLUMNS, BLOCKS
from controller.perceive.planning import initial_planning
from controller.perceive.usual_speed import initial_usual
from controller.shield.load import initial_load
from controller.state import ControllerState
from controller.supervise.meta import initial_memory
from controller.supervise.own_moves import initial_own_moves


def initial_state(setup: ControllerSetup, batch: int) -> ControllerState:
    """State of ``batch`` fleets before their first tick: every slice at home, nothing known."""
    kernels, slices, replicas = setup.layout.shape
    clauses = len(setup.contract.clause_ids)
    table = np.zeros((batch, slices, kernels + 1))
    table[:, np.arange(slices), setup.fleet.home] = 1.0
    return ControllerState(
        ticks=np.zeros(batch, dtype=np.int64),
        now_s=np.full(batch, np.nan),
        window_began_at_s=np.full(batch, np.nan),
        window=np.zeros((batch, replicas, slices, clauses, 4)),
        kernel_window=np.zeros((batch, kernels, slices, clauses, 4)),
        received_at_s=np.full(batch, np.nan),
        scraped_at_s=np.full((batch, replicas), np.nan),
        progressed_at_s=np.full((batch, replicas), np.nan),
        counted_at_s=np.full((batch, replicas), np.nan),
        stepped_at_s=np.full((batch, replicas), np.nan),
        probed_at_s=np.full((batch, replicas, slices), -np.inf),
        overloaded_at_s=np.full((batch, kernels), -np.inf),
        behind=np.zeros((batch, kernels)),
        load=initial_load(batch, kernels, replicas),
        ejected=np.zeros((batch, replicas), dtype=np.bool_),
        table=table,
        row_moved_at_s=np.full((batch, slices), -np.inf),
        row_move_began_at_s=np.full((batch, slices), -np.inf),
        pending=np.zeros((batch, slices), dtype=np.bool_),
        version=np.zeros(batch, dtype=np.int64),
        replica_detector=setup.detector.initial(batch, replicas, setup.contract),
        kernel_detector=setup.detector.initial(batch, kernels, setup.contract),
        **_nothing_measured(setup, batch),
        **_not_judged(setup, batch),
        policy=setup.policy.initial(batch),
        own_moves=initial_own_moves(setup.layout, setup.fleet.home, batch),
        supervisor=initial_memory(setup, batch),
        baseline={} if setup.baseline is None or setup.meta is None else setup.baseline.initial(batch),
        drift=initial_drift(batch, setup.drift),
        bounds=initial_bounds(batch, setup.bounds),
        hang=initial_hang(batch, replicas, setup.hang_timeouts),
    )


def _nothing_measured(setup: ControllerSetup, batch: int) -> dict[str, Any]:
    """Rates before anything was counted; capacities as declared, unbounded where they will be learned."""
    kernels, slices, replicas = setup.layout.shape
    declared_rps = np.tile(setup.fleet.capacity_rps, (batch, 1))
    if setup.fleet.engine is not None:
        declared_rps[:] = UNBOUNDED_RPS
    return {
        "offered_rps": np.zeros((batch, slices)),
        "answered_rps": np.zeros((batch, replicas)),
        "failed_rps": np.zeros((batch, replicas)),
        "request_tokens": np.zeros((batch, 4)),
        "way_s": np.full((batch, replicas, BLOCKS), np.nan),
        "way_block": np.zeros((batch, replicas, BLOCK_COLUMNS)),
        "engine_speed": np.zeros((batch, replicas, 3)),
        "usual": initial_usual(setup, batch),
        "replica_rps": declared_rps.copy(),
        "least_rps": declared_rps.copy(),
        "healthy_rps": declared_rps.copy(),
        "too_many": np.zeros((batch, kernels)),
        "surely_too_many": np.zeros((batch, kernels)),
        "filled_ratio": np.full((batch, kernels), np.inf),
        "planning": initial_planning(declared_rps, slices),
    }


def _not_judged(setup: ControllerSetup, batch: int) -> dict[str, Any]:
    """Every replica in rotation, every clause certified but those that certified values break."""
    kernels, slices, replicas = setup.layout.shape
    clauses, at_rest = len(setup.contract.clause_ids), broken_at_rest(setup)
    return {
        "right_in_a_row": np.full((batch, replicas), ENOUGH),
        "quarantined": np.zeros((batch, replicas), dtype=np.bool_),
        "quarantine_reason": np.zeros((batch, replicas), dtype=np.int64),
        "quarantined_at_s": np.full((batch, replicas), -np.inf),
        "quarantines": np.zeros((batch, replicas), dtype=np.int64),
        "fails_more": np.zeros((batch, replicas, COLUMNS)),
        "needed": np.zeros((batch, replicas), dtype=np.bool_),
        "well_since_at_s": np.full((batch, replicas), np.inf),
        "was_well_s": np.zeros((batch, replicas)),
        "most_offered_rps": np.zeros(batch),
        "readmitted_at_s": np.full((batch, kernels), -np.inf),
        "down_until_at_s": np.full((batch, kernels), -np.inf),
        "answers_in_a_row": np.zeros((batch, kernels), dtype=np.int64),
        "early_returns": np.zeros((batch, kernels), dtype=np.int64),
        "condemned": np.tile(at_rest.condemned, (batch, 1, 1, 1)),
        "answer_loss": np.tile(at_rest.answer_loss, (batch, 1, 1)),
        "replica_condemned": np.zeros((batch, replicas, slices, clauses), dtype=np.bool_),
        "attempts": np.zeros((batch, kernels, 2)),
        "more_failures": np.zeros((batch, kernels, kernels + 1)),
        "at_fault": np.zeros((batch, kernels), dtype=np.bool_),
    }
