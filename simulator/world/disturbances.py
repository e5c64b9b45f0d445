"""Faults and ordinary changes of a scenario, resolved from names to replicas, doses and times."""

from __future__ import annotations

from collections.abc import Iterable

from contracts.compiled.contract import FleetLayout
from contracts.documents.scenario import Change, FaultTarget, ScenarioSpec, ScheduledFault
from faults.catalogue import CATALOGUE, Channel, FaultKind
from faults.effects import ALL_REQUESTS, Struck
from faults.schedule import FaultPlan, Shape, struck_share
from simulator.world.compiled_scenario import FleetChange, Surge
from simulator.world.kernel_measurements import profile_refusal
from simulator.world.pool import MeasuredPool
from simulator.world.tables import KernelTable, is_measured

#: Default time from the start of a process until it is ready. Measured engines of this size start in 2 to
#: 50 s; this value stands for a warm image.
COLD_START_S = 20.0
#: Conditions of a trigger that simulated requests can fulfil.
SIMULATED_CONDITIONS = ("min_generated_tokens", "min_batch_size", "slice")


def extra_replicas(spec: ScenarioSpec) -> dict[str, int]:
    """Replicas per kernel that scale-ups add to the pool."""
    extra: dict[str, int] = {}
    for change in spec.changes:
        if change.kind == "scale_up" and change.kernel:
            extra[change.kernel] = extra.get(change.kernel, 0) + (change.replicas or 1)
    return extra


def compile_faults(
    spec: ScenarioSpec, layout: FleetLayout, pool: MeasuredPool, tables: tuple[KernelTable, ...], file: str
) -> tuple[FaultPlan, ...]:
    """Plans of all faults that act on replicas, in document order."""
    plans = []
    for index, fault in enumerate(spec.faults):
        if CATALOGUE[fault.kind].channel is not Channel.ARRIVALS:
            plans.append(_plan(fault, f"spec.faults[{index}]", spec, layout, pool, tables, file))
    return tuple(plans)


def compile_surges(spec: ScenarioSpec) -> tuple[Surge, ...]:
    """Extra load of load-surge faults and of surges as ordinary change."""
    surges = []
    for fault in spec.faults:
        if fault.kind == "load_surge":
            factor = fault.dose if fault.dose is not None else CATALOGUE["load_surge"].dose.default
            ends_at_s = _end(fault.onset_s, fault.duration_s, spec.horizon_s)
            surges.append(
                Surge(name=fault.name, is_fault=True, at_s=fault.onset_s, ends_at_s=ends_at_s, factor=factor)
            )
    for index, change in enumerate(spec.changes):
        if change.kind == "surge":
            ends_at_s = _end(change.at_s, change.duration_s, spec.horizon_s)
            name = change.name or f"change-{index}"
            factor = change.factor or 2.0
            surges.append(
                Surge(name=name, is_fault=False, at_s=change.at_s, ends_at_s=ends_at_s, factor=factor)
            )
    return tuple(surge for surge in surges if surge.factor != 1.0)


def compile_changes(
    spec: ScenarioSpec, layout: FleetLayout, pool: MeasuredPool, file: str
) -> tuple[FleetChange, ...]:
    """Ordinary changes that act on replicas, in document order."""
    present = {kernel.entry.name: kernel.entry.replicas for kernel in pool.kernels}
    changes = []
    for index, change in enumerate(spec.changes):
        if change.kind != "surge":
            replicas = _changed(change, f"spec.changes[{index}]", layout, present, file)
            changes.append(_fleet_change(change, replicas, spec.horizon_s))
    return tuple(changes)


def resolve_target(target: FaultTarget, layout: FleetLayout, path: str, file: str) -> tuple[int, ...]:
    """Indices of the replicas that ``target`` selects; refuses a target that selects none."""
    wanted = target.kernels or ((target.kernel,) if target.kernel else layout.kernels)
    for name in wanted:
        _known(name, layout.kernels, f"{path}.kernel", file)
    chosen = [
        index
        for index in range(len(layout.replicas))
        if layout.kernels[layout.replica_kernel[index]] in wanted
    ]
    if target.zone is not None:
        chosen = [index for index in chosen if layout.zones[index] == target.zone]
    if target.replica is not None:
        chosen = chosen[target.replica : target.replica + 1]
    if not chosen:
        raise profile_refusal(
            file, path, "a target with at least one replica", "none", "check kernel, replica and zone"
        )
    return struck_share(chosen, target.replica_ratio)


def _plan(
    fault: ScheduledFault,
    path: str,
    spec: ScenarioSpec,
    layout: FleetLayout,
    pool: MeasuredPool,
    tables: tuple[KernelTable, ...],
    file: str,
) -> FaultPlan:
    kind = CATALOGUE[fault.kind]
    _check_simulated(fault, kind, path, file)
    replicas = resolve_target(fault.target, layout, f"{path}.target", file)
    kernels = [int(layout.replica_kernel[replica]) for replica in replicas]
    _check_condition(fault, kind, sorted(set(kernels)), pool, path, file)
    ladders = {k: _ladder(fault, kind, pool, tables, k) for k in set(kernels)}
    return FaultPlan(
        name=fault.name,
        kind=fault.kind,
        replicas=replicas,
        ladders=tuple(ladders[kernel] for kernel in kernels),
        dose=_dose(fault, kind, pool, kernels[0], path, file),
        onset_s=fault.onset_s,
        ends_at_s=_end(fault.onset_s, fault.duration_s, spec.horizon_s),
        shape=_shape(fault, path, file),
        struck=_struck(fault, layout, path, file),
    )


def _check_simulated(fault: ScheduledFault, kind: FaultKind, path: str, file: str) -> None:
    """Refuse faults that only live servers can show."""
    if kind.channel is Channel.LIVE_ONLY:
        expected = "a kind of fault that can be simulated"
        step = "simulated answers have no text and no sampling: run it against live servers"
        raise profile_refusal(file, f"{path}.kind", expected, fault.kind, step)
    if fault.trigger is None:
        return
    unseen = [name for name in fault.trigger.conditions if name not in SIMULATED_CONDITIONS]
    step = "simulated requests know no more; run it against live servers"
    if unseen:
        expected = " or ".join(SIMULATED_CONDITIONS)
        raise profile_refusal(file, f"{path}.trigger.{unseen[0]}", expected, unseen[0], step)
    if kind.channel is not Channel.NUMERIC:
        expected = "a trigger of a fault of numbers"
        raise profile_refusal(file, f"{path}.trigger", expected, f"one of {fault.kind}", step)


def _struck(fault: ScheduledFault, layout: FleetLayout, path: str, file: str) -> Struck:
    """The requests that the fault strikes."""
    trigger = fault.trigger
    if trigger is None:
        return ALL_REQUESTS
    if trigger.slice is not None:
        _known(trigger.slice, layout.slices, f"{path}.trigger.slice", file)
    return Struck(
        slice=-1 if trigger.slice is None else layout.slices.index(trigger.slice),
        after_tokens=trigger.min_generated_tokens or 0,
        min_batch=trigger.min_batch_size or 0,
    )


def _check_condition(
    fault: ScheduledFault, kind: FaultKind, kernels: Iterable[int], pool: MeasuredPool, path: str, file: str
) -> None:
    if fault.condition is None:
        if kind.measured:
            raise profile_refusal(
                file,
                f"{path}.condition",
                "a measured condition of the profile",
                "nothing",
                f"name the dose of {fault.kind}",
            )
        return
    for kernel in kernels:
        samples = pool.kernels[kernel].samples
        documented = _documented(pool, kernel)
        present = fault.condition in documented and fault.condition in samples.condition_names
        if present and (not kind.measured or is_measured(samples, fault.condition, pool.by)):
            continue
        known = [
            name
            for name in samples.condition_names
            if name in documented and (not kind.measured or is_measured(samples, name, pool.by))
        ]
        _known(fault.condition, tuple(known), f"{path}.condition ({pool.kernels[kernel].entry.name})", file)


def _documented(pool: MeasuredPool, kernel: int) -> set[str]:
    return {condition.name for condition in pool.kernels[kernel].profile.spec.conditions}


def _ladder(
    fault: ScheduledFault, kind: FaultKind, pool: MeasuredPool, tables: tuple[KernelTable, ...], kernel: int
) -> tuple[int, ...]:
    """Condition indices of the same measured fault up to the named dose, in increasing drift."""
    if not kind.measured or fault.condition is None or fault.dose == 0.0:
        return ()
    measured = pool.kernels[kernel]
    conditions = tables[kernel].conditions
    last = conditions.index(fault.condition)
    family = measured.fault_of(fault.condition)
    documented = _documented(pool, kernel)
    below = (
        i for i in range(last) if conditions[i] in documented and measured.fault_of(conditions[i]) == family
    )
    return (*below, last)


def _dose(
    fault: ScheduledFault, kind: FaultKind, pool: MeasuredPool, kernel: int, path: str, file: str
) -> float:
    if kind.measured:
        return 1.0
    if kind.channel is Channel.STEP_TIME and fault.condition is not None and fault.dose is None:
        return pool.kernels[kernel].step_time_factor(fault.condition)
    dose = kind.dose.default if fault.dose is None else fault.dose
    if not kind.dose.lowest <= dose <= kind.dose.highest:
        expected = f"{kind.dose.quantity} in {kind.dose.lowest:g}..{kind.dose.highest:g}"
        raise profile_refusal(file, f"{path}.dose", expected, f"{dose:g}", f"see the dose of {kind.name}")
    return dose


def _shape(fault: ScheduledFault, path: str, file: str) -> Shape:
    block = {"ramp": fault.ramp, "intermittent": fault.intermittent, "slow_onset": fault.slow_onset}
    if fault.shape != "step" and block[fault.shape] is None:
        raise profile_refusal(
            file, f"{path}.{fault.shape}", f"the block of shape {fault.shape}", "nothing", "add it"
        )
    if fault.shape == "intermittent" and fault.intermittent is not None:
        rhythm = fault.intermittent
        return Shape(kind=fault.shape, period_s=rhythm.period_s, duty_ratio=rhythm.duty_ratio)
    if fault.shape == "ramp" and fault.ramp is not None:
        return Shape(kind=fault.shape, rise_s=fault.ramp.rise_s)
    if fault.shape == "slow_onset" and fault.slow_onset is not None:
        return Shape(kind=fault.shape, rise_s=fault.slow_onset.rise_s)
    return Shape()


def _changed(
    change: Change, path: str, layout: FleetLayout, present: dict[str, int], file: str
) -> tuple[int, ...]:
    """Replicas that a change concerns; ``present`` tracks each kernel's number of replicas over the
    changes.
    """
    if change.kind not in ("scale_up", "scale_down"):
        return resolve_target(FaultTarget(kernel=change.kernel, zone=change.zone), layout, path, file)
    if change.kernel is None:
        raise profile_refusal(
            file, f"{path}.kernel", "a kernel of the pool", "nothing", "name the kernel that scales"
        )
    _known(change.kernel, layout.kernels, f"{path}.kernel", file)
    count, have = change.replicas or 1, present[change.kernel]
    own = resolve_target(FaultTarget(kernel=change.kernel), layout, path, file)
    if change.kind == "scale_up":
        present[change.kernel] = have + count
        return own[have : have + count]
    if count > have:
        raise profile_refusal(
            file, f"{path}.replicas", f"at most {have}", str(count), "remove fewer replicas"
        )
    present[change.kernel] = have - count
    return own[have - count : have]


def _fleet_change(change: Change, replicas: tuple[int, ...], horizon_s: float) -> FleetChange:
    cold_start_s = COLD_START_S if change.cold_start_s is None else change.cold_start_s
    return FleetChange(
        kind=change.kind,
        at_s=change.at_s,
        replicas=replicas,
        step_s=change.step_s or 2.0 * cold_start_s,
        cold_start_s=cold_start_s,
        ends_at_s=_end(change.at_s, change.duration_s, horizon_s),
        ratio=1.0 if change.ratio is None else change.ratio,
    )


def _end(at_s: float, duration_s: float | None, horizon_s: float) -> float:
    return horizon_s if duration_s is None else min(at_s + duration_s, horizon_s)


def _known(name: str, names: tuple[str, ...], path: str, file: str) -> None:
    if name not in names:
        raise profile_refusal(file, path, " or ".join(names), repr(name), "use one of these names")
