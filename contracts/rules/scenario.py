"""Rules of scenarios and drills, and of the faults that both share."""

from __future__ import annotations

import math
from collections.abc import Iterator

from contracts.documents.drill import GUARD_METRICS, DrillLoad, DrillSpec, Guard
from contracts.documents.pool import PoolKernel, PoolSpec
from contracts.documents.scenario import Change, FaultTarget, ScenarioSpec, ScheduledFault
from contracts.documents.trigger import Trigger
from contracts.documents.workload import Workload
from contracts.errors import KeyPath
from contracts.rules.breach import Breach, only_block, prefixed, repeated_names, unknown_name
from contracts.rules.pool import pool_breaches

#: Limits on the size of an episode, far above any use, so that a typing error does not exhaust memory.
MOST_TICKS, MOST_REQUESTS, MOST_PROBES_PER_S = 1_000_000, 1_000_000_000, 1_000
#: Fault kinds whose effect is a measured condition of the kernel's profile.
MEASURED_KINDS = ("requantise", "noise", "bit_flips", "kernel_regression", "scale")


def scenario_breaches(spec: ScenarioSpec) -> Iterator[Breach]:
    """Broken rules of one scenario, paths from its spec."""
    yield from _pool(spec)
    yield from _workload(spec.workload, spec.pool)
    if spec.tick_s > spec.horizon_s:
        hint = "shorten the tick or lengthen the episode"
        expected = f"at most horizon_s {spec.horizon_s:g}"
        yield Breach(path=("tick_s",), expected=expected, actual=f"{spec.tick_s:g}", next_step=hint)
    yield from _size(spec)
    yield from repeated_names([fault.name for fault in spec.faults], ("faults",), "name")
    for index, fault in enumerate(spec.faults):
        yield from fault_breaches(fault, ("faults", index), spec.pool, spec.horizon_s)
    for index, change in enumerate(spec.changes):
        yield from _change(change, ("changes", index), spec)


def _size(spec: ScenarioSpec) -> Iterator[Breach]:
    """Breaches for an episode with too many ticks, requests or probes."""
    rate, probes = spec.workload.rate_rps, spec.telemetry.probes_per_s
    sizes: tuple[tuple[KeyPath, str, float, float], ...] = (
        (("horizon_s",), "ticks", spec.horizon_s / spec.tick_s, MOST_TICKS),
        (("workload", "rate_rps"), "requests in the episode", spec.horizon_s * rate, MOST_REQUESTS),
        (("telemetry", "probes_per_s"), "probes per second and replica", probes, MOST_PROBES_PER_S),
    )
    for path, what, size, most in sizes:
        if size > most:
            yield Breach(
                path=path,
                expected=f"at most {most:,} {what}",
                actual=f"{size:.3g}",
                next_step="shorten the episode or lower the rate",
            )


def _pool(spec: ScenarioSpec) -> Iterator[Breach]:
    if (spec.pool is None) == (spec.pool_uri is None):
        actual = "neither" if spec.pool is None else "both"
        hint = "write the pool here, or name its file"
        path: KeyPath = ("pool",) if spec.pool is None else ("pool_uri",)
        yield Breach(path=path, expected="pool or pool_uri", actual=actual, next_step=hint)
    if spec.pool is not None:
        yield from prefixed(("pool",), pool_breaches(spec.pool))


def _workload(workload: Workload, pool: PoolSpec | None) -> Iterator[Breach]:
    path: KeyPath = ("workload",)
    arrivals = "trace_uri" if workload.arrivals == "trace" else workload.arrivals
    blocks: dict[str, object] = {
        "gamma": workload.gamma,
        "diurnal": workload.diurnal,
        "surge": workload.surge,
        "trace_uri": workload.trace_uri,
    }
    yield from only_block(arrivals, blocks, path, "arrivals")
    yield from repeated_names([part.slice for part in workload.slice_mix], (*path, "slice_mix"), "slice")
    total = math.fsum(part.share for part in workload.slice_mix)
    if abs(total - 1.0) > 1e-6:
        hint = "shares are parts of all requests; make them add up"
        place = (*path, "slice_mix")
        yield Breach(path=place, expected="shares that sum to 1", actual=f"{total:g}", next_step=hint)
    if pool is not None:
        homes = [home.slice for home in pool.home]
        for index, part in enumerate(workload.slice_mix):
            yield from unknown_name(
                part.slice, homes, (*path, "slice_mix", index, "slice"), "slices with a home"
            )


def fault_breaches(
    fault: ScheduledFault, path: KeyPath, pool: PoolSpec | None, horizon_s: float | None
) -> Iterator[Breach]:
    """Broken rules of one fault at ``path``; targets are checked if ``pool`` is given."""
    blocks = {"ramp": fault.ramp, "intermittent": fault.intermittent, "slow_onset": fault.slow_onset}
    yield from only_block(fault.shape, blocks, path, "shape")
    if horizon_s is not None and fault.onset_s >= horizon_s:
        hint = "it would never happen; move it or lengthen the episode"
        expected = f"a time before horizon_s {horizon_s:g}"
        yield Breach(path=(*path, "onset_s"), expected=expected, actual=f"{fault.onset_s:g}", next_step=hint)
    found_live = fault.live is not None and fault.live.mean_kl_nats is not None
    if fault.kind in MEASURED_KINDS and fault.condition is None and not found_live:
        hint = "name the condition of the kernel's profile that was measured at this dose"
        expected = f"a condition for {fault.kind}"
        yield Breach(path=(*path, "condition"), expected=expected, actual="nothing", next_step=hint)
    yield from _target(fault.target, (*path, "target"), pool)
    if fault.trigger is not None:
        yield from _trigger(fault.trigger, (*path, "trigger"), pool)


def _trigger(trigger: Trigger, path: KeyPath, pool: PoolSpec | None) -> Iterator[Breach]:
    if not trigger.conditions:
        hint = "leave the block away for a fault that always acts"
        yield Breach(path=path, expected="at least one condition", actual="none", next_step=hint)
    residue = trigger.prompt_residue
    if residue is not None and not residue.lowest <= residue.highest < residue.block_tokens:
        yield Breach(
            path=(*path, "prompt_residue"),
            expected=f"lowest <= highest < block_tokens {residue.block_tokens}",
            actual=f"{residue.lowest}..{residue.highest}",
            next_step="remainders lie between 0 and block_tokens - 1",
        )
    if trigger.slice is not None and pool is not None:
        homes = [home.slice for home in pool.home]
        yield from unknown_name(trigger.slice, homes, (*path, "slice"), "slices with a home")


def _target(target: FaultTarget, path: KeyPath, pool: PoolSpec | None) -> Iterator[Breach]:
    if target.replica is not None and target.kernel is None:
        hint = "replicas are counted within a kernel"
        yield Breach(
            path=(*path, "kernel"), expected="the replica's kernel", actual="nothing", next_step=hint
        )
    if target.replica is not None and target.replica_ratio is not None:
        yield Breach(
            path=(*path, "replica_ratio"),
            expected="either one replica or a share of them",
            actual=f"replica {target.replica} and replica_ratio {target.replica_ratio:g}",
            next_step="leave one of the two away",
        )
    if pool is None:
        return
    kernels = {kernel.name: kernel for kernel in pool.kernels}
    if target.kernel is not None:
        yield from unknown_name(target.kernel, kernels, (*path, "kernel"), "pool's kernels")
        yield from _replica(target, kernels.get(target.kernel), path)
    for index, name in enumerate(target.kernels or ()):
        yield from unknown_name(name, kernels, (*path, "kernels", index), "pool's kernels")
    if target.zone is not None:
        yield from unknown_name(target.zone, _zones(pool), (*path, "zone"), "pool's zones")


def _replica(target: FaultTarget, kernel: PoolKernel | None, path: KeyPath) -> Iterator[Breach]:
    if target.replica is not None and kernel is not None and target.replica >= kernel.replicas:
        yield Breach(
            path=(*path, "replica"),
            expected=f"an index below the {kernel.replicas} replicas of {kernel.name}",
            actual=str(target.replica),
            next_step="replicas are counted from 0",
        )


def _zones(pool: PoolSpec) -> list[str]:
    named = {kernel.zone for kernel in pool.kernels if kernel.zone is not None}
    return sorted(named | {zone for kernel in pool.kernels for zone in kernel.zones or ()})


def _change(change: Change, path: KeyPath, spec: ScenarioSpec) -> Iterator[Breach]:
    if change.at_s >= spec.horizon_s:
        hint = "it would never happen; move it or lengthen the episode"
        expected = f"a time before horizon_s {spec.horizon_s:g}"
        yield Breach(path=(*path, "at_s"), expected=expected, actual=f"{change.at_s:g}", next_step=hint)
    if spec.pool is not None and change.kernel is not None:
        names = [kernel.name for kernel in spec.pool.kernels]
        yield from unknown_name(change.kernel, names, (*path, "kernel"), "pool's kernels")


def drill_breaches(spec: DrillSpec, pool: PoolSpec | None = None) -> Iterator[Breach]:
    """Broken rules of one drill, paths from its spec; targets and slices are checked if ``pool`` is given."""
    yield from repeated_names([fault.name for fault in spec.faults], ("faults",), "name")
    for index, fault in enumerate(spec.faults):
        yield from fault_breaches(fault, ("faults", index), pool, spec.time_to_live_s)
    for key, guards in (("steady_state", spec.steady_state), ("abort_when", spec.abort_when)):
        yield from repeated_names([guard.name for guard in guards], (key,), "name")
        for index, guard in enumerate(guards):
            yield from _guard(guard, (key, index), pool)
    if spec.load is not None:
        yield from _load(spec.load, ("load",))
        for index, part in enumerate(spec.load.slice_mix or ()):
            yield from _at_home(part.slice, ("load", "slice_mix", index, "slice"), pool)


def _guard(guard: Guard, path: KeyPath, pool: PoolSpec | None) -> Iterator[Breach]:
    if guard.metric not in GUARD_METRICS:
        expected, hint = (
            f"one of {', '.join(GUARD_METRICS)}",
            "a drill watches requests and replicas in rotation",
        )
        yield Breach(path=(*path, "metric"), expected=expected, actual=repr(guard.metric), next_step=hint)
    elif guard.threshold > 1.0:
        hint = "a ratio is a share of one; write 0.05 for 5 %"
        actual = f"{guard.threshold:g}"
        yield Breach(path=(*path, "threshold"), expected="at most 1", actual=actual, next_step=hint)
    if guard.slice is not None:
        yield from _at_home(guard.slice, (*path, "slice"), pool)


def _at_home(name: str, path: KeyPath, pool: PoolSpec | None) -> Iterator[Breach]:
    if pool is not None:
        yield from unknown_name(name, [home.slice for home in pool.home], path, "slices with a home")


def _load(load: DrillLoad, path: KeyPath) -> Iterator[Breach]:
    kind = "trace_uri" if load.arrivals == "trace" else load.arrivals
    yield from only_block(kind, {"trace_uri": load.trace_uri}, path, "arrivals")
    if load.slice_mix is None:
        return
    yield from repeated_names([part.slice for part in load.slice_mix], (*path, "slice_mix"), "slice")
    total = math.fsum(part.share for part in load.slice_mix)
    if abs(total - 1.0) > 1e-6:
        yield Breach(
            path=(*path, "slice_mix"),
            expected="shares that sum to 1",
            actual=f"{total:g}",
            next_step="shares are parts of all requests; make them add up",
        )
