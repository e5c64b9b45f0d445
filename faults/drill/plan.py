"""A drill document resolved against a pool: which replicas each fault strikes, when phases begin. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from contracts.documents import FaultDrill, PoolSpec
from contracts.documents.drill import DrillLoad, DrillSpec
from contracts.documents.scenario import FaultTarget, ScheduledFault
from contracts.documents.workload import SliceShare
from contracts.errors import DocumentError, refusal
from faults.schedule import struck_share

#: Control interval of every drill, s.
TICK_S = 1.0
#: Load of a drill that specifies none, requests per second.
DEFAULT_RATE_RPS = 4.0
#: Longest time of a verification probe on a busy replica, and the wait after a failed one, s.
PROBE_S, HEAL_WAIT_S = 1.0, 5.0
#: A replica that is not verified after this many attempts has failed.
HEAL_ATTEMPTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One fault of the drill on named replicas (none for a load fault). Times are since the drill's start."""

    fault: ScheduledFault
    replicas: tuple[str, ...]
    onset_s: float
    ends_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillPlan:
    """The resolved drill. Before: 0 to ``onset_s``; during: to ``undo_at_s``; after: to ``total_s``.

    heal_s: longest additional time until every struck replica is verified or has failed.
    """

    name: str
    spec: DrillSpec
    file: str
    strikes: tuple[Strike, ...]
    slices: tuple[SliceShare, ...]
    load: DrillLoad
    onset_s: float
    undo_at_s: float
    total_s: float
    heal_s: float

    @property
    def latest_at_s(self) -> float:
        """Latest possible end of the drill."""
        return self.total_s + self.heal_s


def plan_drill(drill: FaultDrill, file: str, pool: PoolSpec) -> DrillPlan:
    """``drill`` of ``file`` on the fleet that ``pool`` describes.

    Raises DocumentError if a target is not in the pool, or if more replicas would be struck than the drill's
    blast radius allows.
    """
    spec = drill.spec
    strikes = tuple(_strike(spec, index, pool, file) for index in range(len(spec.faults)))
    _check_radius(spec, strikes, pool, file)
    load = spec.load or DrillLoad(rate_rps=DEFAULT_RATE_RPS)
    undo_at_s = float(math.ceil(max(strike.ends_at_s for strike in strikes)))
    return DrillPlan(
        name=drill.metadata.name,
        spec=spec,
        file=file,
        strikes=strikes,
        slices=load.slice_mix or _alike(pool),
        load=load,
        onset_s=min(strike.onset_s for strike in strikes),
        undo_at_s=undo_at_s,
        total_s=undo_at_s + float(math.ceil(spec.after_s)),
        heal_s=_heal_s(spec) if any(strike.replicas for strike in strikes) else 0.0,
    )


def _heal_s(spec: DrillSpec) -> float:
    """Time for every probe of two attempts, the steps of one attempt, and the wait between the attempts."""
    probes_s = 2.0 * PROBE_S * spec.undo.verify_probes
    return float(math.ceil(2.0 * probes_s + spec.undo.readmit_over_s + HEAL_WAIT_S))


def replicas_of(pool: PoolSpec) -> tuple[tuple[str, str, str], ...]:
    """Name, kernel and zone of every replica of ``pool``, in the order of the document."""
    return tuple(
        (f"{kernel.name}-{number}", kernel.name, zones[number % len(zones)])
        for kernel in pool.kernels
        for zones in [kernel.zones or (kernel.zone or "",)]
        for number in range(kernel.replicas)
    )


def _alike(pool: PoolSpec) -> tuple[SliceShare, ...]:
    return tuple(SliceShare(slice=home.slice, share=1.0 / len(pool.home)) for home in pool.home)


def _strike(spec: DrillSpec, index: int, pool: PoolSpec, file: str) -> Strike:
    fault = spec.faults[index]
    ends_at_s = spec.time_to_live_s if fault.duration_s is None else fault.onset_s + fault.duration_s
    selected = () if fault.kind == "load_surge" else tuple(_selected(fault.target, pool))
    found = struck_share(selected, fault.target.replica_ratio)
    if fault.kind != "load_surge" and not found:
        kernels = ", ".join(f"{kernel.name} x {kernel.replicas}" for kernel in pool.kernels)
        raise _refusal(
            file,
            f"spec.faults[{index}].target",
            f"replicas of {kernels}",
            "none of them",
            "correct the target",
        )
    return Strike(
        fault=fault, replicas=found, onset_s=fault.onset_s, ends_at_s=min(ends_at_s, spec.time_to_live_s)
    )


def _selected(target: FaultTarget, pool: PoolSpec) -> Iterator[str]:
    wanted = target.kernels or ((target.kernel,) if target.kernel else ())
    for name, kernel, zone in replicas_of(pool):
        number = int(name.rpartition("-")[2])
        if (
            (not wanted or kernel in wanted)
            and (target.zone is None or zone == target.zone)
            and (target.replica is None or number == target.replica)
        ):
            yield name


def _check_radius(spec: DrillSpec, strikes: tuple[Strike, ...], pool: PoolSpec, file: str) -> None:
    """Refuse a drill that strikes more replicas than its blast radius allows."""
    struck = {name for strike in strikes for name in strike.replicas}
    radius, fleet = spec.blast_radius, len(replicas_of(pool))
    most = math.floor(radius.replica_ratio_at_most * fleet + 1e-9)
    if radius.replicas_at_most is not None:
        most = min(most, radius.replicas_at_most)
    if len(struck) > most:
        raise _refusal(
            file,
            "spec.blast_radius",
            f"faults on at most {most} of {fleet} replicas",
            f"{len(struck)} ({', '.join(sorted(struck))})",
            "strike fewer, or allow more in blast_radius",
        )


def _refusal(file: str, path: str, expected: str, actual: str, next_step: str) -> DocumentError:
    return refusal(file, expected, actual, next_step, path=path)
