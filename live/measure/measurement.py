"""The plan of a kernel's measurement, and its results."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from contracts.documents.serving_path import ServingPath
from contracts.documents.step_time import StepTime
from live.measure.backend import EngineFacts, StepPlan
from live.measure.endpoint import Endpoint
from live.measure.kernels import FaultDose, Kernel, RestartFault


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCondition:
    """A running server that is the kernel in a wrong configuration: a fault that cannot be injected."""

    name: str
    endpoint: Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurePlan:
    """What to measure of each kernel. repeats: healthy and faulty passes over the prompts."""

    seed: int = 0
    repeats: int = 2
    doses: tuple[FaultDose, ...] = ()
    restarts: tuple[RestartFault, ...] = ()
    servers: tuple[ServerCondition, ...] = ()
    steps: StepPlan | None = field(default_factory=StepPlan)
    """None: step times are not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCondition:
    """Results for the kernel in one state. values: float64 [prompts, repeats, columns], NaN: not measured."""

    name: str
    fault: str
    setting: float
    unit: str
    verified: bool
    restored: bool
    step_time_factor: float
    values: NDArray[np.float64]  # [prompts, repeats, columns], NaN where not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMeasurement:
    """All results for one kernel; ``notes`` holds observations made on the way."""

    kernel: Kernel
    facts: EngineFacts
    conditions: tuple[MeasuredCondition, ...]
    step_time: StepTime | None
    peak_bytes: int
    notes: tuple[str, ...]
    serving: ServingPath | None = None
