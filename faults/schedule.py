"""When faults act, and on which of the selected replicas: shapes in time, and shares of replicas.

A plan names the replicas that it strikes, so faults on a kernel, a replica, a zone or several kernels have
one form; simulated, live and cluster drills use the same rule. Shapes are expanded into exactly timed
changes of intensity. Expansion is pure: equal plans give equal changes; the neutral dose gives none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from faults.catalogue import CATALOGUE, is_neutral
from faults.effects import ALL_REQUESTS, Struck

#: Steps of a ramp with a free number as dose; a measured ladder brings its own steps.
DEFAULT_RAMP_STEPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Course of a fault over time."""

    kind: str = "step"
    """``step``, ``ramp`` (equal steps over ``rise_s``), ``slow_onset`` (steps over ``rise_s``, intensity
    growing with the square of time) or ``intermittent`` (on for ``duty_ratio`` of every ``period_s``)."""
    rise_s: float = 0.0
    steps: int = 0
    """Steps of a rise; 0: one per measured dose."""
    period_s: float = 0.0
    duty_ratio: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """One fault of a scenario, resolved to replicas."""

    name: str
    kind: str
    replicas: tuple[int, ...]
    """Indices of the replicas hit."""
    ladders: tuple[tuple[int, ...], ...]
    """For each of them the condition ladder of its kernel (``faults.effects.ActiveFault``), empty for faults
    that change no numbers."""
    dose: float
    onset_s: float
    ends_at_s: float
    shape: Shape = Shape()
    struck: Struck = ALL_REQUESTS
    """Which requests of these replicas a measured condition affects."""

    @property
    def period_s(self) -> float:
        """Period of an intermittent fault, 0 for the other shapes."""
        return self.shape.period_s if self.shape.kind == "intermittent" else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultChange:
    """From ``at_s`` on, fault number ``fault`` acts at ``intensity``."""

    at_s: float
    fault: int
    intensity: float


def expand(plans: Iterable[FaultPlan], horizon_s: float) -> tuple[FaultChange, ...]:
    """Changes of all ``plans`` up to ``horizon_s``, by time, then by the order of the plans."""
    changes = [
        FaultChange(at_s=at_s, fault=index, intensity=intensity)
        for index, plan in enumerate(plans)
        if acts(plan)
        for at_s, intensity in _course(plan)
        if at_s < horizon_s
    ]
    return tuple(sorted(changes, key=lambda change: (change.at_s, change.fault)))


def acts(plan: FaultPlan) -> bool:
    """False for a plan at the neutral dose of its kind, or a measured one without a ladder."""
    if CATALOGUE[plan.kind].measured:
        return any(any(ladder) for ladder in plan.ladders) and plan.dose > 0.0
    return not is_neutral(plan.kind, plan.dose)


def _course(plan: FaultPlan) -> Iterator[tuple[float, float]]:
    shape = plan.shape
    if shape.kind == "intermittent":
        yield from _bursts(plan)
    elif shape.kind == "step" or shape.rise_s <= 0.0:
        yield plan.onset_s, 1.0
    else:
        yield from _rise(plan)
    yield plan.ends_at_s, 0.0


def _rise(plan: FaultPlan) -> Iterator[tuple[float, float]]:
    steps = plan.shape.steps or max((len(ladder) for ladder in plan.ladders), default=0) or DEFAULT_RAMP_STEPS
    power = 2.0 if plan.shape.kind == "slow_onset" else 1.0
    for step in range(steps):
        # A slow onset spends most of its rise at small doses: equal intensities, times by square root.
        at_s = plan.onset_s + plan.shape.rise_s * (step / steps) ** (1.0 / power)
        if at_s < plan.ends_at_s:
            yield at_s, (step + 1) / steps


def _bursts(plan: FaultPlan) -> Iterator[tuple[float, float]]:
    period_s, on_s = plan.shape.period_s, plan.shape.period_s * plan.shape.duty_ratio
    for burst in range(math.ceil((plan.ends_at_s - plan.onset_s) / period_s)):
        starts_at_s = plan.onset_s + burst * period_s
        yield starts_at_s, 1.0
        if starts_at_s + on_s < plan.ends_at_s:
            yield starts_at_s + on_s, 0.0


T = TypeVar("T")


def struck_share(selected: Sequence[T], replica_ratio: float | None) -> tuple[T, ...]:
    """``replica_ratio`` in (0, 1] of ``selected``, in their order; all of them if it is None.

    Rounded down, but at least one, and spread evenly: replicas are listed by kernel, so a share strikes the
    kernels equally as far as whole replicas allow.
    """
    if replica_ratio is None or not selected:
        return tuple(selected)
    count = max(1, math.floor(replica_ratio * len(selected) + 1e-9))
    return tuple(selected[index * len(selected) // count] for index in range(count))
