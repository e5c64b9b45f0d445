"""What a controller is told of its kernels' engines, for simulated and for running fleets alike.

Measured step times tell more than a stated capacity: what a kernel carries is learned from them and from what
its servers count, of the requests that come and under every objective of the contract. So an engine is told
wherever all kernels were measured, whatever capacities the pool states. A stated capacity goes with it as a
prior: it may hold what no step time knows (a quota, a neighbour on the machine), so plans count on no more
until a kernel has carried more; one that is too high says nothing that step times do not know better. Where
step times are missing nothing is learned: capacities stand as stated, those of measured kernels as derived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.compiled.steady_state import UNCUT, Demand, EngineModel, capacities_rps
from contracts.documents.pool import PoolKernel
from contracts.units import s_from_ms

#: Capacity of a kernel of which nothing is known: nothing moves for want of room.
UNKNOWN_RPS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredEngine:
    """A kernel of the pool with what was measured of its engine."""

    kernel: PoolKernel
    step_s: NDArray[np.float64] | None  # [4], as requests feel a step; None: not measured
    request_s: float = 0.0  # by which serving delays each request


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredRequests:
    """The mean request as declared, and the longest that is let in."""

    mean: Demand
    longest: Demand = UNCUT


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ToldEngine:
    """Engines of K kernels, and what one replica of each carries as stated or derived."""

    model: EngineModel | None  # None: not every kernel was measured
    capacity_rps: NDArray[np.float64]  # [K]
    unknown: tuple[str, ...]  # kernels of which nobody measured or stated anything


def told_engine(
    engines: Sequence[MeasuredEngine], contract: CompiledContract, requests: DeclaredRequests
) -> ToldEngine:
    """What is told of ``engines``, kernel by kernel of the layout, under the objectives of ``contract``."""
    capacity_rps = np.full(len(engines), UNKNOWN_RPS)
    known = [at for at, one in enumerate(engines) if one.step_s is not None]
    model = _model([engines[at] for at in known], contract, requests) if known else None
    if model is not None:
        capacity_rps[known] = capacities_rps(model.step_s, model, model.demand)
    for at, one in enumerate(engines):
        capacity_rps[at] = one.kernel.capacity_rps or capacity_rps[at]
    nothing = [one for one in engines if one.step_s is None and one.kernel.capacity_rps is None]
    return ToldEngine(
        model=model if len(known) == len(engines) else None,
        capacity_rps=capacity_rps,
        unknown=tuple(one.kernel.name for one in nothing),
    )


def _model(
    engines: Sequence[MeasuredEngine], contract: CompiledContract, requests: DeclaredRequests
) -> EngineModel:
    """Engines that were all measured: every limit of the pool, every objective of the contract."""
    whole_s, first_s, gap_s = (s_from_ms(float(each)) for each in contract.slo_ms.min(axis=0))
    limits = [one.kernel.limits for one in engines]
    delays_s = tuple(one.request_s for one in engines)
    stated_rps = tuple(one.kernel.capacity_rps or float("inf") for one in engines)
    return EngineModel(
        step_s=np.array([one.step_s for one in engines], dtype=np.float64),
        sequences=np.array([float(each.max_sequences) for each in limits]),
        kv_tokens=np.array([float(each.kv_blocks * each.block_tokens) for each in limits]),
        inter_token_s=gap_s,
        first_token_s=first_s,
        whole_s=whole_s,
        step_tokens=float(max(each.max_batch_tokens for each in limits)),
        longest=requests.longest,
        demand=requests.mean,
        request_s=delays_s if any(delays_s) else (),
        stated_rps=stated_rps if min(stated_rps) < float("inf") else (),
    )
