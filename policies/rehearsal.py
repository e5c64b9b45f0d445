"""A made-up fleet to rehearse with: compiles what numba compiles, and feeds the benchmark of ``tick``.

Nothing here is measured and no result may come from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from contracts.certified import CertifiedValues, certified_values
from contracts.compiled import CompiledContract, Source
from contracts.layout import HISTOGRAM_EDGES_MS, LATENCY_FAMILIES, FleetLayout
from contracts.telemetry import FleetTelemetry, ProbeSamples, ReplicaState
from controller.features import Encoder
from controller.loop import tick
from controller.ports import Observation, PolicyState, Proposal
from controller.setup import FleetSetup
from controller.state import initial_state
from policies.baselines import BASELINES, make_arm
from policies.choosing import Chooser
from policies.supervised import shipped_meta, under

_METRICS = ("kl_mean@full_vocab", "top1_flip@full_vocab")
#: Source, column, threshold, rate limit (None: a mean), hard, level of the ten rehearsed clauses.
_CLAUSES: tuple[tuple[Source, int, float, float | None, bool, int], ...] = (
    (Source.PROBE, 0, 1e-3, None, False, 3),
    (Source.PROBE, 0, 2e-3, None, True, 3),
    (Source.PROBE, 0, 4e-3, 0.01, False, 2),
    (Source.PROBE, 1, 0.05, None, False, 2),
    (Source.LATENCY, 1, 8000.0, 0.05, False, 2),
    (Source.LATENCY, 0, 30000.0, 0.01, False, 2),
    (Source.FAILED, -1, 0.02, None, False, 3),
    (Source.KV_USED, -1, 0.95, 0.05, False, 1),
    (Source.FINGERPRINT, -1, 0.0, 0.0, True, 3),
    (Source.TRACE_FIELDS, -1, 0.0, 0.05, False, 1),
)


def rehearsal_fleet(kernels: int, slices: int, replicas: int) -> FleetSetup:
    """Fleet with ten clauses; replicas are dealt to the kernels in turn, the last kernel is known good."""
    layout = FleetLayout(
        kernels=tuple(f"kernel{index}" for index in range(kernels)),
        slices=tuple(f"slice{index}" for index in range(slices)),
        replicas=tuple(f"replica{index}" for index in range(replicas)),
        replica_kernel=np.arange(replicas, dtype=np.int64) % kernels,
        probe_metrics=_METRICS,
        known_good=kernels - 1,
    )
    return FleetSetup(
        layout=layout,
        contract=_contract(layout),
        capacity_rps=np.full(kernels, 10.0),
        home=np.zeros(slices, dtype=np.int64),
    )


def rehearsal_telemetry(
    fleet: FleetSetup, now_s: float, batch: int, probes: int, rng: np.random.Generator
) -> FleetTelemetry:
    """Healthy traffic with ``probes`` probe samples per fleet, some of them over the thresholds."""
    _, slices, replicas = fleet.layout.shape
    answered = rng.poisson(1.0, (batch, replicas, slices))
    columns = len(HISTOGRAM_EDGES_MS) + 1
    latency_le = np.repeat(answered[..., None], len(LATENCY_FAMILIES), axis=3)
    values = rng.exponential([5e-4, 0.02], (batch, probes, len(_METRICS)))
    drawn = ProbeSamples(
        replica=rng.integers(0, replicas, (batch, probes)),
        slice=rng.integers(0, slices, (batch, probes)),
        prompt=np.zeros((batch, probes), dtype=np.int64),
        sampled_at_ms=np.full((batch, probes), now_s * 1000.0),
        values=values,
        valid=np.ones((batch, probes), dtype=np.bool_),
    )
    return FleetTelemetry(
        now_ms=np.full(batch, now_s * 1000.0),
        replica_state=np.full((batch, replicas), int(ReplicaState.READY), dtype=np.int8),
        scraped_at_ms=np.full((batch, replicas), (now_s // 5.0) * 5000.0),
        running=np.full((batch, replicas), 4.0),
        waiting=np.zeros((batch, replicas)),
        kv_used_ratio=rng.uniform(0.1, 0.9, (batch, replicas)),
        answered=answered,
        failed=np.zeros_like(answered),
        latency_le=np.repeat(latency_le[..., None], columns, axis=4),
        consecutive_failed=np.zeros((batch, replicas), dtype=np.int64),
        fingerprint_match=np.ones((batch, replicas)),
        trace_fields_ratio=np.ones((batch, replicas)),
        offered=answered.sum(axis=1),
        probes=drawn,
    )


def warm() -> None:
    """Compile every numba function of controller and policies, so that no job pays for it after a fork.

    With one fleet and with two: arrays of one fleet are contiguous in more ways, so numba compiles twice.
    """
    fleet = replace(rehearsal_fleet(2, 2, 4), certified=_certified(2))
    rng = np.random.Generator(np.random.PCG64(0))
    arms = [make_arm(name, fleet) for name in (*BASELINES, "sequential:prior=1")]
    arms.append(replace(make_arm("sequential", fleet), policy=_Staying(chooser=_chooser(fleet))))
    for setup, batch in product([*arms, under(shipped_meta(), make_arm("threshold", fleet))], (1, 2)):
        state = initial_state(setup, batch)
        for now_s in (0.0, fleet.contract.window_s):
            state, _ = tick(state, _troubled(rehearsal_telemetry(fleet, now_s, batch, 4, rng)), setup)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Staying:
    """What a learned policy does around its network, which needs no compiling."""

    chooser: Chooser
    policy_id: str = "staying"
    reads_running: bool = True

    def initial(self, batch: int) -> PolicyState:
        """Every slice at home."""
        return self.chooser.initial(batch)

    def propose(self, seen: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """The choice as it is."""
        _, memory = self.chooser.look(seen, state)
        return self.chooser.propose(np.asarray(memory["choice"], dtype=np.int64), seen, memory)


def _chooser(fleet: FleetSetup) -> Chooser:
    encoder = Encoder(kernels_max=len(fleet.layout.kernels), slices=len(fleet.home))
    return Chooser.of(encoder, len(fleet.layout.kernels), fleet.home, fleet.contract)


def _troubled(seen: FleetTelemetry) -> FleetTelemetry:
    """The same with one failing replica, so that the rare paths are compiled as well."""
    seen.failed[:, 0] = 1
    seen.consecutive_failed[:, 0] = 9
    seen.fingerprint_match[:, 1] = 0.0
    return seen


def _certified(kernels: int) -> CertifiedValues:
    """One prompt, that of ``rehearsal_telemetry``, on every kernel; what replicas answer is another."""
    nothing = np.zeros(1, dtype=np.int64)
    return certified_values(nothing, nothing, [np.full((1, 1, len(_METRICS)), 1e-4)] * kernels, 0.01)


def _contract(layout: FleetLayout) -> CompiledContract:
    source, column, threshold, limit, hard, level = zip(*_CLAUSES, strict=True)
    slices, clauses = len(layout.slices), len(_CLAUSES)
    return CompiledContract(
        name="rehearsal",
        sha256="",
        slices=layout.slices,
        clause_ids=tuple(f"C{index}" for index in range(clauses)),
        family=("N", "N", "N", "N", "R", "R", "R", "R", "O", "O"),
        source=np.array(source, dtype=np.int64),
        column=np.array(column, dtype=np.int64),
        edge=np.array([12 if kind is Source.LATENCY else -1 for kind in source], dtype=np.int64),
        threshold=np.array(threshold),
        sense=np.ones(clauses),
        is_rate=np.array([value is not None for value in limit]),
        rate_limit=np.array([1.0 if value is None else value for value in limit]),
        clip=np.full(clauses, np.inf),
        budget=np.where(np.array(hard), 0.0, 0.05),
        hard=np.array(hard),
        level=np.array(level, dtype=np.int64),
        weight=np.ones(clauses),
        applies=np.ones((clauses, slices), dtype=np.bool_),
        guard_threshold=0.5,
        fallback_threshold=2.0,
        window_s=60.0,
        min_samples=20,
        alarm_confidence=0.999,
        shed_when_uncertified=False,
        ejection_cap_ratio=0.5,
        stale_after_s=30.0,
        slo_ms=np.full((slices, len(LATENCY_FAMILIES)), 10000.0),
        priority=np.zeros(slices, dtype=np.int64),
    )
