"""Certification suites for the user's own fleet: incidents, quiet months, and the meta-contract over both.

Everything comes from one scenario: its pool, contract and traffic. Incidents use the conditions measured on
the home kernels: of those that break the contract the mildest, the middle and the most severe, in different
shapes, on the whole build and on one replica; beside them a crash, a hang and failing
requests of one replica, and a busy day without a fault. A fault that leaves a slice without a target is left
out, because no policy could mitigate it; omissions are reported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from contracts.documents import KernelPool, MetaContract, Scenario, ScheduledFault, Suite
from contracts.documents.envelope import Metadata
from contracts.documents.meta import Certification
from contracts.documents.scenario import Change, FaultTarget, IntermittentShape, RampShape, SlowOnsetShape
from contracts.documents.suite import SuiteScenario, SuiteSpec
from contracts.errors import DocumentError, refusal
from contracts.loading.loader import dump_text, load_as
from contracts.loading.shipped import SHIPPED_META
from contracts.loading.uris import PACKAGE_PREFIX, resolve_uri
from contracts.rules.scenario import MEASURED_KINDS
from contracts.telemetry import Source
from scripts.output import ready_folder, write_whole
from scripts.train.certify import CertificationRequest, inputs_sha256, plan_certification
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.kernel_measurements import MeasuredKernel
from simulator.world.pool import MeasuredPool, load_pool
from simulator.world.scenario import compile_scenario

#: Seeds that nothing else here uses: of incidents, and of quiet fleets.
INCIDENT_SEED, QUIET_SEED = 900_001, 950_001
INCIDENT_S, QUIET_S = 600.0, 7200.0
#: Factor on the scenario's rate on quiet fleets: probes decide there, and months must be affordable.
QUIET_RATE = 0.1
#: Longest name in a document.
_LONGEST_NAME = 63
#: Default begin of the incidents, each at its own second.
_ONSET_S = 94.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRequest:
    """The request. rate_rps: None for the scenario's own."""

    scenario: str
    out: Path
    rate_rps: float | None = None
    seeds: int = 20
    quiet_days: float = 120.0
    baseline: str = "hysteresis"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSuites:
    """meta: the document to certify by. incidents: names. left_out: faults that no policy could mitigate."""

    meta: Path
    incidents: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Fleet:
    """The scenario without its faults, with queries for broken slices."""

    scenario: Scenario
    pool: MeasuredPool
    world: CompiledScenario
    left_out: list[str] = field(default_factory=list)

    @property
    def homes(self) -> list[int]:
        """Kernels that serve some slice without faults, in pool order."""
        return sorted(set(self.world.home.tolist()))

    def broken(self, kernel: int, condition: int) -> np.ndarray[Any, Any]:
        """Slices of ``kernel`` that the condition breaks, int64."""
        mine = self.world.home == kernel
        return np.flatnonzero(self.world.violating[kernel, condition] & mine)

    def has_target(self, kernel: int, slice_index: int) -> bool:
        """Whether another kernel keeps the contract on the slice."""
        healthy = ~self.world.violating[:, 0, slice_index]
        healthy[kernel] = False
        return bool(healthy.any())


def write_suites(asked: SuiteRequest) -> WrittenSuites:
    """Write both suites, their base scenarios and the meta-contract into ``asked.out``.

    Raises DocumentError for a scenario that does not compile, and if it gives no incident.
    """
    fleet, base = _fleet_of(asked)
    incidents = tuple(_incidents(fleet))
    if not any(not row.control for row in incidents):
        expected = "a home kernel with a measured fault that breaks the contract, or with two replicas"
        hint = "measure faults (selvage profile --dose), or give a home kernel a second replica"
        raise _refusal(asked.scenario, expected, "; ".join(fleet.left_out) or "neither", hint)
    ready_folder(asked.out)
    _write(asked.out / "incidents-base.yaml", _calm(base, "incidents-base", INCIDENT_S, 1.0))
    _write(asked.out / "quiet-base.yaml", _calm(base, "quiet-base", QUIET_S, QUIET_RATE))
    _write(asked.out / "incidents.yaml", _suite("incidents", INCIDENT_SEED, incidents))
    _write(asked.out / "quiet.yaml", _suite("quiet", QUIET_SEED, tuple(_quiet(fleet))))
    meta = asked.out / "meta-contract.yaml"
    _write_meta(meta, asked)
    return WrittenSuites(
        meta=meta, incidents=tuple(row.name for row in incidents), left_out=tuple(fleet.left_out)
    )


def _fleet_of(asked: SuiteRequest) -> tuple[_Fleet, Scenario]:
    """The fleet, and the calm scenario with URIs that are valid from ``asked.out``."""
    file = resolve_uri(asked.scenario, "selvage policy suite")
    given = load_as(Scenario, file)
    workload = given.spec.workload
    if asked.rate_rps is not None:
        workload = workload.model_copy(update={"rate_rps": asked.rate_rps})
    spec = given.spec.model_copy(update={"faults": (), "changes": (), "workload": workload})
    calm = given.model_copy(update={"spec": spec})
    pool, world = load_pool(spec, str(file)), compile_scenario(calm, str(file))
    return _Fleet(scenario=calm, pool=pool, world=world), _seen_from(asked.out, calm, file)


def _seen_from(out: Path, scenario: Scenario, file: Path) -> Scenario:
    """``scenario`` of ``file`` with paths valid in ``out``, relative, so that both can be moved."""

    def held(uri: str | None) -> str | None:
        if uri is None or uri.startswith(PACKAGE_PREFIX):
            return uri
        return Path(os.path.relpath(resolve_uri(uri, file).absolute(), out.absolute())).as_posix()

    spec = scenario.spec
    workload = spec.workload.model_copy(update={"trace_uri": held(spec.workload.trace_uri)})
    found: dict[str, Any] = {
        "contract": held(spec.contract),
        "pool_uri": held(spec.pool_uri),
        "workload": workload,
    }
    if spec.pool is not None:
        kernels = tuple(k.model_copy(update={"profile": held(k.profile)}) for k in spec.pool.kernels)
        found["pool"] = spec.pool.model_copy(update={"kernels": kernels})
    return scenario.model_copy(update={"spec": spec.model_copy(update=found)})


def _calm(base: Scenario, name: str, horizon_s: float, rate: float) -> Scenario:
    """``base`` for this duration, at a multiple of its rate."""
    workload = base.spec.workload.model_copy(update={"rate_rps": rate * base.spec.workload.rate_rps})
    described = f"The fleet of {base.metadata.name}, without a fault."
    spec = base.spec.model_copy(
        update={"horizon_s": horizon_s, "workload": workload, "description": described}
    )
    return base.model_copy(update={"spec": spec, "metadata": Metadata(name=name)})


def _incidents(fleet: _Fleet) -> Iterator[SuiteScenario]:
    number = 0
    for kernel in fleet.homes:
        for name, fault in (*_numeric(fleet, kernel), *_visible(fleet, kernel)):
            onset_s = _ONSET_S + (3 * number) % 19
            number += 1
            placed = fault.model_copy(update={"onset_s": onset_s})
            # Cut names may be equal although whole ones are not.
            cut = f"{name[: _LONGEST_NAME - 3].rstrip('-._')}-{number}"
            yield SuiteScenario(name=name if len(name) <= _LONGEST_NAME else cut, faults=(placed,))
    busiest = fleet.world.layout.kernels[fleet.homes[0]]
    surge = Change(kind="surge", at_s=90.0, duration_s=180.0, factor=1.3)
    restart = Change(kind="rolling_restart", at_s=300.0, kernel=busiest, step_s=45.0, cold_start_s=25.0)
    yield SuiteScenario(name="busy-day", control=True, changes=(surge, restart))


def _numeric(fleet: _Fleet, kernel: int) -> Iterator[tuple[str, ScheduledFault]]:
    """Mildest, middle and most severe of the measured conditions that break a home slice of ``kernel``."""
    measured, table = fleet.pool.kernels[kernel], fleet.world.tables[kernel]
    breaking = [q for q in range(1, len(table.conditions)) if fleet.broken(kernel, q).size]
    curable = [q for q in breaking if all(fleet.has_target(kernel, s) for s in fleet.broken(kernel, q))]
    fleet.left_out += [
        f"{table.conditions[q]} on {measured.entry.name}: no other kernel keeps the contract there"
        for q in breaking
        if q not in curable
    ]
    picked = sorted({curable[0], curable[len(curable) // 2], curable[-1]}) if curable else []
    for place, condition in enumerate(picked):
        name = table.conditions[condition]
        plain = _measured_fault(measured, name)
        yield f"{measured.entry.name}-{name}", plain.model_copy(update=_SHAPES[place % len(_SHAPES)])
        if place == len(picked) - 1 and measured.entry.replicas > 1:
            one = FaultTarget(kernel=measured.entry.name, replica=0)
            yield f"{measured.entry.name}-{name}-one-replica", plain.model_copy(update={"target": one})


#: Shapes of an incident: at once, within a minute, intermittent, slow.
_SHAPES: tuple[dict[str, Any], ...] = (
    {"shape": "slow_onset", "slow_onset": SlowOnsetShape(rise_s=60.0)},
    {"shape": "ramp", "ramp": RampShape(rise_s=30.0)},
    {"shape": "intermittent", "intermittent": IntermittentShape(period_s=90.0, duty_ratio=0.5)},
)


def _measured_fault(kernel: MeasuredKernel, condition: str) -> ScheduledFault:
    kind = kernel.fault_of(condition)
    return _fault(
        name="wrong-numbers",
        kind=kind if kind in MEASURED_KINDS else "kernel_regression",
        target=FaultTarget(kernel=kernel.entry.name),
        condition=condition,
    )


def _fault(**fields: Any) -> ScheduledFault:
    """A fault of a kind known by its name; its begin is set later."""
    return ScheduledFault(onset_s=_ONSET_S, **fields)


def _visible(fleet: _Fleet, kernel: int) -> Iterator[tuple[str, ScheduledFault]]:
    """Visible faults of one replica of several."""
    entry = fleet.pool.kernels[kernel].entry
    if entry.replicas < 2:
        fleet.left_out.append(f"a lost replica of {entry.name}: it has no other")
        return
    last = FaultTarget(kernel=entry.name, replica=entry.replicas - 1)
    befalls: list[tuple[str, str, float | None]] = [("crash", "crash", None), ("hang", "hang", None)]
    if (fleet.world.contract.source == int(Source.FAILED)).any():
        befalls.append(("errors", "http_errors", 0.4))
    else:
        promise = "the contract promises nothing of failures (a clause on failure_rate does)"
        fleet.left_out.append(f"errors of {entry.name}: {promise}")
    for name, kind, dose in befalls:
        yield f"{entry.name}-{name}", _fault(name=name, kind=kind, target=last, dose=dose)


def _quiet(fleet: _Fleet) -> Iterator[SuiteScenario]:
    """Two hours without events, and two hours of the ordinary events of any fleet."""
    yield SuiteScenario(name="still", control=True)
    first = fleet.world.layout.kernels[fleet.homes[0]]
    changes = (
        Change(kind="rolling_restart", at_s=600.0, kernel=first, step_s=60.0, cold_start_s=25.0),
        Change(kind="lost_scrapes", at_s=1800.0, duration_s=600.0, ratio=0.5),
        Change(kind="surge", at_s=3000.0, duration_s=300.0, factor=2.0),
        Change(kind="scale_up", at_s=4200.0, kernel=first, replicas=1, cold_start_s=45.0),
        Change(kind="cache_flush", at_s=5400.0, kernel=first),
    )
    yield SuiteScenario(name="ordinary-change", control=True, changes=changes)


def _suite(name: str, seed: int, scenarios: tuple[SuiteScenario, ...]) -> Suite:
    spec = SuiteSpec(
        description=f"Certification of policies on a fleet of its own: {name}.",
        base=f"{name}-base.yaml",
        scenarios=scenarios,
        seed=seed,
    )
    return Suite(metadata=Metadata(name=f"certify-{name}"), spec=spec)


def _named(text: str) -> str:
    """``text`` as a valid document name: a folder may have blanks, underscores and any script."""
    return re.sub("[^a-z0-9.-]+", "-", text.lower())[:253].strip(".-")


def _write_meta(path: Path, asked: SuiteRequest) -> None:
    """The shipped clauses over these suites, with their present worlds pinned."""
    shipped = load_as(MetaContract, resolve_uri(SHIPPED_META, "selvage policy suite"))
    asks = Certification(incidents="incidents.yaml", quiet="quiet.yaml", quiet_slice_days=asked.quiet_days)
    update = {"certification": asks, "suite_seeds": asked.seeds, "baseline": asked.baseline}
    named = Metadata(name=_named(f"{shipped.metadata.name}-{asked.out.resolve().name}"))
    made = shipped.model_copy(update={"spec": shipped.spec.model_copy(update=update), "metadata": named})
    _write(path, made)
    plan = plan_certification(
        CertificationRequest(
            spec="fixed-bare", subject="", subject_sha256="0" * 64, command="", meta_uri=str(path)
        )
    )
    pinned = asks.model_copy(update={"inputs_sha256": inputs_sha256(plan)})
    spec = made.spec.model_copy(update={"certification": pinned})
    _write(path, made.model_copy(update={"spec": spec}))


def _write(path: Path, document: Scenario | Suite | MetaContract | KernelPool) -> None:
    write_whole(path, dump_text(document))


def _refusal(file: str, expected: str, actual: str, hint: str) -> DocumentError:
    return refusal(file, expected, actual, hint, path="spec.pool")
