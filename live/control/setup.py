"""Builds a controller's set-up for running servers from documents: pool, contract and policy.

The replicas are given by the caller: a fleet of this machine, a list of addresses and a cluster all end up
here. A server returns only its most probable tokens, so clauses are judged by their ``top_k`` estimator, a
lower bound. Clauses that none of the available columns can judge are dropped and reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.build import compile_contract, edges_for, request_delay_s, served_step_s
from contracts.compiled.contract import CompiledContract, FleetLayout
from contracts.compiled.steady_state import Demand, EngineModel, capacities_rps
from contracts.documents import KernelContract, KernelPool, KernelProfile, PoolKernel, RoutePolicy
from contracts.documents.serving_path import ServingPath
from contracts.documents.step_time import StepTime
from contracts.loading.loader import load_as
from contracts.loading.profiles import check_pinned_profiles
from contracts.loading.uris import resolve_uri
from contracts.metrics import GENERATION_COLUMNS, PASSIVE_COLUMNS, metric
from contracts.rules.estimators import AsMeasured, with_measured_estimators
from contracts.telemetry import SampleRates, Source
from contracts.units import MS_PER_S
from controller.fleet import FleetSetup, stages_of
from controller.options import ControllerSetup
from policies.route import coverage_gaps, route_setup, uncertified

#: Columns that a default server's answers provide: by ``live.measure.backend``, by ``live.probe.kinds``, and
#: from users' own answers by ``live.observe.sampled``.
COLUMNS = frozenset(
    {"kl_mean@top_k", "tv_mean@top_k", "top1_flip@top_k", *GENERATION_COLUMNS, *PASSIVE_COLUMNS}
)
#: Assumed capacity of a kernel if nothing is known of it, so high that nothing moves for lack of capacity.
UNKNOWN_RPS = 1e6
#: Mean request until servers have reported theirs.
DEMAND = Demand(prompt_tokens=256.0, output_tokens=128.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDocuments:
    """The documents of a controller, and the files that URIs in them are relative to."""

    pool: KernelPool
    pool_file: Path
    contract: KernelContract
    policy: RoutePolicy
    policy_file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSetup:
    """A set-up, and notes to report before it is used."""

    setup: ControllerSetup
    notes: tuple[str, ...]


def live_setup(
    documents: LiveDocuments, replicas: Mapping[str, tuple[str, ...]], rates: SampleRates
) -> LiveSetup:
    """The set-up of a controller for these ``replicas`` (kernel -> names of its replicas).

    Raises DocumentError if pool, contract and policy do not fit each other or the policy may not drive,
    and ProfileDiffersError if a profile differs from the one that the pool pins.
    """
    check_pinned_profiles(documents.pool, documents.pool_file)
    judged = with_measured_estimators(documents.contract, COLUMNS)
    contract = _judgeable(judged)
    layout = live_layout(documents.pool, contract, replicas)
    compiled = compile_contract(contract, layout)
    names = list(layout.kernels)
    kernels = [one for one in documents.pool.spec.kernels if one.name in names]
    homes = {home.slice: home.kernel for home in documents.pool.spec.home}
    capacity_rps, engine, said = _capacity(kernels, documents.pool_file, compiled)
    fleet = FleetSetup(
        layout=layout,
        contract=compiled,
        capacity_rps=capacity_rps,
        engine=engine,
        home=np.array([names.index(homes[name]) for name in layout.slices], dtype=np.int64),
        tick_s=documents.policy.spec.tick_s,
        rates=rates,
        stage=stages_of(kernels),
    )
    file = str(documents.policy_file)
    observes = documents.policy.spec.mode == "observe"
    setup = route_setup(documents.policy, file, fleet)
    if documents.policy.spec.own_clocks is None:  # profiles hold step times of another machine
        setup = replace(setup, own_clocks="usual")
    lacking = uncertified(documents.policy, file) if observes else _uncovered(documents.policy, file, fleet)
    return LiveSetup(setup=setup, notes=(*judged.notes(), *said, *lacking))


def _uncovered(policy: RoutePolicy, file: str, fleet: FleetSetup) -> tuple[str, ...]:
    """Why a fallback drives ``fleet``, and which facts, such as its load, no certificate could be compared
    with.
    """
    gaps = coverage_gaps(policy, file, fleet)
    return (*gaps.lines(policy), *gaps.unknown)


def live_layout(
    pool: KernelPool, contract: KernelContract, replicas: Mapping[str, tuple[str, ...]]
) -> FleetLayout:
    """Axes: kernels with replicas and a role other than reference, in the pool's order; slices with
    a home.
    """
    kernels = [one for one in pool.spec.kernels if one.role != "reference" and replicas.get(one.name)]
    names = tuple(one.name for one in kernels)
    owner = [at for at, name in enumerate(names) for _ in replicas[name]]
    return FleetLayout(
        kernels=names,
        slices=tuple(home.slice for home in pool.spec.home),
        replicas=tuple(replica for name in names for replica in replicas[name]),
        replica_kernel=np.array(owner, dtype=np.int64),
        probe_metrics=_probe_metrics(contract),
        known_good=next(at for at, one in enumerate(kernels) if one.role == "known_good"),
        zones=tuple(one.zone_of(number) for one in kernels for number in range(len(replicas[one.name]))),
        edges_ms=edges_for(contract),
    )


def expected_fingerprints(pool: KernelPool) -> dict[str, str]:
    """Kernel -> the ``system_fingerprint`` its servers must state, for kernels whose pool entry has one."""
    return {
        one.name: one.fingerprint.system_fingerprint
        for one in pool.spec.kernels
        if one.fingerprint is not None and one.fingerprint.system_fingerprint
    }


def _judgeable(judged: AsMeasured) -> KernelContract:
    """The contract without the clauses that no server's answer can judge."""
    spec = judged.contract.spec
    kept = tuple(clause for clause in spec.clauses if clause.id not in judged.unmeasured)
    return judged.contract.model_copy(update={"spec": spec.model_copy(update={"clauses": kept})})


def _probe_metrics(contract: KernelContract) -> tuple[str, ...]:
    """Columns that the contract's clauses read from probes, in the order of the clauses."""
    found = [(metric(clause.metric), clause.estimator) for clause in contract.spec.clauses]
    probed = [spec.column(estimator) for spec, estimator in found if spec.source == Source.PROBE]
    return tuple(dict.fromkeys(probed))


def _capacity(
    kernels: list[PoolKernel], file: Path, contract: CompiledContract
) -> tuple[NDArray[np.float64], EngineModel | None, tuple[str, ...]]:
    """Requests per second of one replica of each kernel; the measured engine model, or None; and notes.

    Capacity is taken from the pool if stated there, else derived from measured step times, else unknown.
    """
    stated = [one.capacity_rps for one in kernels]
    if all(stated):
        return np.array(stated, dtype=np.float64), None, ()
    measured = [_measured(one, file) for one in kernels]
    known = [one for one in measured if one is not None]
    if len(known) == len(kernels):
        model = _engine(kernels, known, contract)
        return capacities_rps(model.step_s, model, DEMAND), model, ()
    unknown = [one.name for one, rps in zip(kernels, stated, strict=True) if rps is None]
    message = (
        f"capacity of {', '.join(unknown)} is not known: nothing moves for want of room; state capacity_rps"
    )
    return np.array([rps or UNKNOWN_RPS for rps in stated]), None, (message,)


def _measured(kernel: PoolKernel, file: Path) -> tuple[StepTime, ServingPath | None] | None:
    """Measured step times and serving path of a kernel; None without a profile, or without step
    times in it.
    """
    place = resolve_uri(kernel.profile, file)
    if not place.is_file():
        return None
    spec = load_as(KernelProfile, place).spec
    return None if spec.step_time is None else (spec.step_time, spec.serving)


def _engine(
    kernels: list[PoolKernel],
    measured: list[tuple[StepTime, ServingPath | None]],
    contract: CompiledContract,
) -> EngineModel:
    paces = contract.slo_ms[:, 2][np.isfinite(contract.slo_ms[:, 2])]
    return EngineModel(
        step_s=np.array([served_step_s(step, serving) for step, serving in measured]),
        request_s=tuple(request_delay_s(serving) for _, serving in measured),
        sequences=np.array([float(one.limits.max_sequences) for one in kernels]),
        kv_tokens=np.array([float(one.limits.kv_blocks * one.limits.block_tokens) for one in kernels]),
        inter_token_s=float(paces.min()) / MS_PER_S if paces.size else float("inf"),
        demand=DEMAND,
    )
