"""Simulated fleets with faults and changes, and drivers of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.scoring.episode import EpisodeRecord
from contracts.telemetry import FleetTelemetry
from controller.ports import RoutingPlan
from faults.catalogue import CATALOGUE, Channel
from policies.registry import make_configuration
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario

HORIZON_S = 40.0
Fault = dict[str, object]
#: One fault of every kind that can be simulated, at an effective dose.
FAULTS: dict[str, Fault] = {
    kind: {
        "name": kind.replace("_", "-"),
        "kind": kind,
        "onset_s": 10.0,
        "target": {} if kind == "load_surge" else {"kernel": "bf16"},
    }
    | ({"condition": "requantise-w4"} if entry.measured else {"dose": entry.dose.default})
    for kind, entry in CATALOGUE.items()
    if entry.channel is not Channel.LIVE_ONLY
}
FAULTS["correlated"]["target"] = {"kernels": ["bf16", "int8"]}
CHANGES: list[dict[str, object]] = [
    {"kind": "rolling_restart", "kernel": "int8", "at_s": 5.0, "step_s": 7.0, "cold_start_s": 3.0},
    {"kind": "scale_up", "kernel": "bf16", "at_s": 8.0, "replicas": 2, "cold_start_s": 4.0},
    {"kind": "scale_down", "kernel": "bf16", "at_s": 20.0},
    {"kind": "cache_flush", "kernel": "bf16", "at_s": 15.5},
    {"kind": "surge", "at_s": 12.0, "duration_s": 10.0, "factor": 2.0},
    {"kind": "lost_scrapes", "at_s": 11.0, "duration_s": 15.0, "ratio": 0.8},
]


@dataclass
class FixedDriver:
    """Keeps one table and rotation forever and records the telemetry; for laws of the world alone."""

    scenario: CompiledScenario
    weights: list[float] | None = None
    out_from: dict[int, int] = field(default_factory=dict)
    resets: bool = False
    seen: list[FleetTelemetry] = field(default_factory=list)
    policy_id: str = "test"
    capacity_move: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(1, dtype=np.bool_))

    def begin(self, batch: int) -> RoutingPlan:
        self.seen.clear()
        self.capacity_move = np.zeros(batch, dtype=np.bool_)
        kernels, slices, replicas = self.scenario.layout.shape
        table = np.zeros((batch, slices, kernels + 1))
        if self.weights is None:
            table[:, np.arange(slices), self.scenario.home] = 1.0
        else:
            table[:] = self.weights
        self._plan = RoutingPlan(
            table=table,
            in_rotation=np.ones((batch, replicas), dtype=np.bool_),
            version=np.zeros(batch, dtype=np.int64),
        )
        return self._plan

    def step(self, telemetry: FleetTelemetry) -> RoutingPlan:
        self.seen.append(telemetry)
        in_rotation = self._plan.in_rotation.copy()
        reset = np.zeros_like(in_rotation)
        for replica, tick in self.out_from.items():
            in_rotation[:, replica] &= len(self.seen) < tick
            reset[:, replica] = self.resets and len(self.seen) == tick
        return RoutingPlan(
            table=self._plan.table, in_rotation=in_rotation, version=self._plan.version, reset=reset
        )


def arrays_of(record: object, prefix: str = "") -> Iterator[tuple[str, NDArray[Any]]]:
    """Every array of a record and of the records in it, by its name from the top."""
    assert is_dataclass(record)
    for entry in fields(record):
        value = getattr(record, entry.name)
        if is_dataclass(value):
            yield from arrays_of(value, f"{prefix}{entry.name}.")
        else:
            yield f"{prefix}{entry.name}", value


Build = Callable[..., CompiledScenario]


def assert_same_bytes(one: EpisodeRecord, other: EpisodeRecord, skip: tuple[str, ...] = ()) -> None:
    """Assert that two records agree byte for byte."""
    for entry in fields(EpisodeRecord):
        if entry.name in skip:
            continue
        left, right = getattr(one, entry.name), getattr(other, entry.name)
        if isinstance(left, np.ndarray):
            assert left.tobytes() == right.tobytes(), entry.name
        else:
            assert left == right, entry.name


def drive(scenario: CompiledScenario, policy: str = "hysteresis") -> ControllerDriver:
    """The project's controller over ``scenario``."""
    return ControllerDriver(make_configuration(policy, scenario.setup))


def once(scenario: CompiledScenario, seed: int) -> EpisodeRecord:
    """One episode under the default policy."""
    return run_episodes(scenario, drive(scenario), [seed])[0]
