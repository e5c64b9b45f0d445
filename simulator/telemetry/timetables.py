"""Timetables of telemetry: when replicas are scraped, and when a replica computes which probe.

Scrapes come at equal intervals, for each replica with its own phase, and some are lost. Probes have a budget,
go round robin over the slices, and follow an order that is drawn once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from contracts.rng import stream
from simulator.telemetry.gateway import ticks_between
from simulator.world.compiled_scenario import CompiledScenario


class Schedule(NamedTuple):
    """When replicas are scraped. B fleets, R replicas, T ticks."""

    interval: NDArray[np.int64]  # [B] ticks between two scrapes
    phase: NDArray[np.int64]  # [B, R] tick within the interval
    luck: NDArray[np.float64]  # [T, B, R] in [0, 1): the scrape is lost if below the loss ratio


def scrape_schedule(each: Sequence[CompiledScenario], seeds: list[int]) -> Schedule:
    """When the replicas of each fleet are scraped; drawn from the fleet's own seed."""
    scenario = each[0]
    _, _, replicas = scenario.layout.shape
    interval = ticks_between(each)
    draws = [_draws(seed, scenario.ticks, replicas) for seed in seeds]
    phase = np.stack([phase for phase, _ in draws]) * interval[:, None]
    luck = np.stack([luck for _, luck in draws], axis=1)
    return Schedule(interval=interval, phase=np.floor(phase).astype(np.int64), luck=luck)


def _draws(seed: int, ticks: int, replicas: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = stream(seed, "scrapes")
    return rng.random(replicas), rng.random((ticks, replicas))


def slots_per_replica(scenario: CompiledScenario) -> int:
    """Largest number of probes of one replica in one tick."""
    return int(np.ceil(scenario.telemetry.probes_per_s * scenario.tick_s - 1e-9))


class ProbeTimetable(NamedTuple):
    """When a replica computes which probe. R replicas, S slices, n prompts of the largest slice."""

    tick_s: float
    gap_s: float  # between two probes of a replica; inf: no probes
    phase: NDArray[np.float64]  # [B, R] time of the first probe as a share of the gap
    planned: NDArray[np.int64]  # [B, R] probes until the horizon
    done: NDArray[np.int64]  # [B, R] probes of earlier ticks
    order: NDArray[np.int32]  # [B, R, S, n] indices on the probe axis
    sizes: NDArray[np.int64]  # [S] prompts of each slice
    repeats: int  # number that every kernel was measured with


class ProbeSlots(NamedTuple):
    """The probes of one tick. P slots: an equal number for each replica, grouped by replica."""

    place: NDArray[np.int64]  # [B, P] on the probe axis
    repeat: NDArray[np.int64]  # [B, P]
    at_s: NDArray[np.float64]  # [B, P] time of its computation; inf if the slot is unused


def probe_plan(scenario: CompiledScenario, seeds: list[int]) -> ProbeTimetable:
    """The probes of every fleet, each drawn from its own seed."""
    slots = slots_per_replica(scenario)
    replicas, slices = len(scenario.layout.replicas), len(scenario.layout.slices)
    of_slices = [scenario.prompts.probe_of(index) for index in range(slices)]
    sizes = np.array([prompts.size for prompts in of_slices], dtype=np.int64)
    order = np.zeros((len(seeds), replicas, slices, int(sizes.max())), dtype=np.int32)
    phase = np.zeros((len(seeds), replicas))
    for index, prompts in enumerate(of_slices):
        order[:, :, index, : prompts.size] = prompts
    for fleet, seed in enumerate(seeds if slots else ()):
        for replica in range(replicas):
            rng = stream(seed, "probes", replica)
            phase[fleet, replica] = rng.random()
            for index, prompts in enumerate(of_slices):
                rng.shuffle(order[fleet, replica, index, : prompts.size])
    gap_s = 1.0 / scenario.telemetry.probes_per_s if slots else np.inf
    # Instants in (0, horizon].
    count = np.floor(scenario.horizon_s / gap_s - phase - 1e-9) + 1.0
    return ProbeTimetable(
        tick_s=scenario.tick_s,
        gap_s=gap_s,
        phase=phase,
        planned=np.maximum(count, 0.0).astype(np.int64),
        done=np.zeros(phase.shape, dtype=np.int64),
        order=order,
        sizes=sizes,
        repeats=repeats_of(scenario),
    )


@compiled
def schedule(tick, last, packed_plan, packed_slots):
    """The probes of ``tick``: replica r begins with slice r, cycles over slices, and repeats each slice's
    order.

    The last tick includes probes that rounding left over.
    """
    plan, slots = borrowed(ProbeTimetable(*packed_plan)), borrowed(ProbeSlots(*packed_slots))
    batch, replicas, slices, _ = plan.order.shape
    each = slots.place.shape[1] // replicas
    for b in range(batch):
        for p in range(slots.place.shape[1]):
            r, n = p // each, plan.done[b, p // each]
            at_s = (plan.phase[b, r] + 1e-9 + n) * plan.gap_s
            if n < plan.planned[b, r] and (last or int(np.ceil(at_s / plan.tick_s)) - 1 <= tick):
                s = (n + r) % slices
                slots.place[b, p] = plan.order[b, r, s, n // slices % plan.sizes[s]]
                slots.repeat[b, p] = n % plan.repeats
                slots.at_s[b, p] = at_s
                plan.done[b, r] += 1
            else:
                slots.place[b, p], slots.repeat[b, p], slots.at_s[b, p] = 0, 0, np.inf


def repeats_of(scenario: CompiledScenario) -> int:
    """Number of repeats that every kernel of the pool was measured with."""
    return min(int(table.probe.shape[2]) for table in scenario.tables)
