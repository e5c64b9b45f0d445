"""Clauses and SLOs that the replicas' true states break; kept apart from everything a controller may see.

A replica violates on a slice while its measured condition breaks a probe-judged clause on the slice's
*traffic* prompts, or while it breaks an observability clause. Its answers are *exposed* if that clause moves
traffic: a soft clause of level L1 only informs, and a missing trace field does not make an answer worse. It
violates at runtime in three cases: it is crashed or hung; it answers more errors than the contract allows; or
it is so slow, delayed or short of KV blocks that a mean request of the slice cannot meet its SLO at the fair
share of the load.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.compiled.steady_state import batch_limit, mean_latencies_ms, steady_batch
from contracts.telemetry import Source
from contracts.units import MS_PER_S
from controller.detect.clauses import moves_traffic
from faults.effects import ReplicaEffect, slowing
from simulator.world.compiled_scenario import CompiledScenario

#: Share of failed answers that is a violation if the contract names none; also E5's limit for answers outside
#: the SLO.
FAILED_LIMIT = 0.01


class Violations:
    """What the replicas of B fleets break now; the result for each state is computed once."""

    def __init__(self, scenario: CompiledScenario, batch: int) -> None:
        _, slices, replicas = scenario.layout.shape
        self._scenario = scenario
        self._known: dict[tuple[int, ReplicaEffect], tuple[NDArray[np.bool_], ...]] = {}
        #: Bool [B, R, S]: breaks a numeric, statistical or observability clause on the slice.
        self.silent = np.zeros((batch, replicas, slices), dtype=np.bool_)
        #: Bool [B, R, S]: breaks a runtime clause or SLO on the slice.
        self.runtime = np.zeros((batch, replicas, slices), dtype=np.bool_)
        #: Bool [B, R, S]: part of ``silent`` that is due to a clause that moves traffic.
        self.exposing = np.zeros((batch, replicas, slices), dtype=np.bool_)
        for replica in range(replicas):
            self.note(slice(None), replica, ReplicaEffect())

    def note(self, fleets: int | slice, replica: int, effect: ReplicaEffect) -> None:
        """Set the replica's true state in ``fleets`` to ``effect`` from now on."""
        key = int(self._scenario.layout.replica_kernel[replica]), effect
        if key not in self._known:
            moves = moves_traffic(self._scenario.contract)
            silent = numeric_or_observability(self._scenario, *key)
            exposing = numeric_or_observability(self._scenario, *key, among=moves)
            self._known[key] = silent, runtime(self._scenario, *key), exposing
        self.silent[fleets, replica], self.runtime[fleets, replica], self.exposing[fleets, replica] = (
            self._known[key]
        )


def numeric_or_observability(
    scenario: CompiledScenario,
    kernel: int,
    effect: ReplicaEffect,
    among: NDArray[np.bool_] | None = None,
) -> NDArray[np.bool_]:
    """Bool [S]: the replica's true state breaks a clause of the families N, S or O; for O only clauses in
    ``among`` bool [C] count (None: all).

    A condition that strikes some answers of a slice, or their later tokens, is judged by what it strikes.
    """
    contract = scenario.contract
    broken: NDArray[np.bool_] = scenario.violating[kernel, effect.condition].copy()
    if effect.struck.slice >= 0:
        others = np.arange(broken.size) != effect.struck.slice
        broken[others] = scenario.violating[kernel, 0][others]
    mismatched = 1.0 if effect.wrong_fingerprint else 0.0
    broken |= _share_broken(contract, Source.FINGERPRINT, mismatched, among)
    broken |= _share_broken(contract, Source.TRACE_FIELDS, effect.trace_fields_missing_ratio, among)
    return broken


def runtime(scenario: CompiledScenario, kernel: int, effect: ReplicaEffect) -> NDArray[np.bool_]:
    """Bool [S]: the replica's true state breaks a runtime clause or SLO on the slice."""
    contract, slices = scenario.contract, len(scenario.layout.slices)
    if effect.crashed or effect.hang:
        return np.ones(slices, dtype=np.bool_)
    broken = _failures_broken(contract, effect.http_error_ratio)
    for source, share in slowing(effect).items():
        broken |= _share_broken(contract, source, share)
    if effect.step_time_factor > 1.0 or effect.kv_held_ratio > 0.0 or effect.http_latency_ms > 0.0:
        broken |= (expected_latencies_ms(scenario, kernel, effect) > contract.slo_ms).any(axis=1)
    return broken


def expected_latencies_ms(
    scenario: CompiledScenario, kernel: int, effect: ReplicaEffect
) -> NDArray[np.float64]:
    """Latencies of the mean request at the fair share of the load under ``effect``, ms, float64 [F]."""
    spec = scenario.engine
    step_model = spec.step_model[kernel] * effect.step_time_factor
    tokens = float(spec.kv_blocks[kernel] * spec.block_tokens) * (1.0 - effect.kv_held_ratio)
    if effect.kv_held_ratio > 0.0 and unfit_ratio(scenario, tokens) > FAILED_LIMIT:
        return np.full(3, np.inf)
    limit = batch_limit(scenario.demand, spec.max_batch, tokens)
    batch = steady_batch(step_model, scenario.demand, limit, float(scenario.fair_rps[kernel]))
    late_ms = effect.http_latency_ms + MS_PER_S * spec.delay_s(kernel)
    added = np.array([late_ms, late_ms, 0.0])
    return np.asarray(mean_latencies_ms(step_model, scenario.demand, batch) + added)


def unfit_ratio(scenario: CompiledScenario, tokens: float) -> float:
    """Share of the prompts that do not fit into ``tokens`` of KV cache together with a mean output."""
    law = scenario.workload.prompt_tokens[0]
    left = tokens - scenario.demand.output_tokens
    if left >= law.high or (law.sigma == 0.0 and left >= law.mean):
        return 0.0
    if left <= 0.0 or law.sigma == 0.0:
        return 1.0
    return 0.5 * math.erfc((math.log(left) - law.log_median) / (law.sigma * math.sqrt(2.0)))


def _share_broken(
    contract: CompiledContract, source: Source, share: float, among: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """Slices on which a clause over ``source``, of those ``among`` bool [C], is broken if ``share`` of the
    observations are bad.
    """
    broken = np.zeros(len(contract.slices), dtype=np.bool_)
    chosen = contract.source == int(source)
    for clause in np.flatnonzero(chosen if among is None else chosen & among):
        is_rate = bool(contract.is_rate[clause])
        limit = contract.rate_limit[clause] if is_rate else contract.threshold[clause]
        if share > limit:
            broken |= contract.applies[clause]
    return broken


def _failures_broken(contract: CompiledContract, ratio: float) -> NDArray[np.bool_]:
    named = contract.applies[contract.source == int(Source.FAILED)].any(axis=0)
    return np.asarray(_share_broken(contract, Source.FAILED, ratio) | (~named & (ratio > FAILED_LIMIT)))
