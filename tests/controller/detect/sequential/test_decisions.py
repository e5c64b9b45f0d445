"""Runs of the controller with the sequential detector: which replicas depart, and when they return."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from contracts.telemetry import FleetTelemetry
from policies.registry import make_configuration
from tests.support.fleets.builders import make_fleet, make_layout
from tests.support.fleets.worlds import Edit, drift, run, script, silence

LAYOUT = make_layout(kernels=3, slices=2, per_kernel=4)
FLEET = make_fleet(LAYOUT)


def test_one_drifting_replica_is_quarantined_and_its_kernel_stays() -> None:
    """Evidence of a departed replica does not condemn its kernel."""
    ticks = run(make_configuration("sequential", FLEET), script(LAYOUT, 90, drift(LAYOUT, [1], 30.0)))
    assert ticks.quarantined()[-1].tolist() == [r == 1 for r in range(12)]
    assert (ticks.tables()[:, :, 0] == 1.0).all()


def test_a_drifting_build_is_left_within_seconds() -> None:
    """All replicas drift: the slices leave before a window could close, and no replica is quarantined."""
    ticks = run(
        make_configuration("sequential", FLEET), script(LAYOUT, 60, drift(LAYOUT, [0, 1, 2, 3], 30.0))
    )
    left = int((ticks.tables()[:, :, 0] == 0.0).all(axis=1).argmax()) + 1
    assert 30 < left <= 34
    assert not ticks.quarantined().any()


def test_a_healed_replica_returns_by_evidence() -> None:
    """A quarantined replica returns once probes show it healthy, and not while it drifts."""
    edits = drift(LAYOUT, [1], 30.0, 200.0)
    away = run(make_configuration("sequential", FLEET), script(LAYOUT, 560, edits)).quarantined()[:, 1]
    assert away[60:200].all()
    assert not away[-1]


def test_silence_is_no_evidence() -> None:
    """Without telemetry no alarm is raised and no alarm ends."""
    setup = make_configuration("sequential", FLEET)
    quiet = run(setup, script(LAYOUT, 60, silence(20.0)))
    assert (quiet.tables()[:, :, 0] == 1.0).all()
    unhealthy = run(setup, script(LAYOUT, 120, drift(LAYOUT, [0, 1, 2, 3], 10.0, 30.0), silence(30.0)))
    assert unhealthy.decisions[-1].judgement.alarm[0, 0].any()


def test_windows_can_be_tuned_by_name() -> None:
    """A configuration's window_s and min_samples replace the contract's; nothing else changes."""
    tuned = make_configuration("hysteresis:window_s=20,min_samples=7", FLEET).contract
    assert (tuned.window_s, tuned.min_samples) == (20.0, 7)
    assert make_configuration("hysteresis", FLEET).fleet is FLEET


def test_a_fault_of_the_kernel_quarantines_no_replica() -> None:
    """A build drifts, on one replica earlier than on the others: the kernel is left, the others stay in."""
    early = drift(LAYOUT, [2], 28.0)
    ticks = run(
        make_configuration("sequential", FLEET), script(LAYOUT, 90, early, drift(LAYOUT, [0, 1, 2, 3], 30.0))
    )
    assert (ticks.tables()[-1, :, 0] == 0.0).all()
    assert not ticks.quarantined()[-1, [0, 1, 3]].any()


def late(from_at_s: float, offered: int) -> Edit:
    """All answers after ``from_at_s`` are late; each slice offers ``offered`` requests a second."""

    def edit(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        if now_s > from_at_s:
            seen.latency_le[..., :-1] = 0
            seen.gateway.latency_le[..., :-1] = 0
        return replace(seen, offered=np.full_like(seen.offered, offered))

    return edit


@pytest.mark.parametrize("configuration", ["sequential", "hysteresis"])
@pytest.mark.parametrize(("offered", "alarm"), [(10, True), (190, True), (210, False)])
def test_late_answers_of_an_overloaded_kernel_do_not_condemn_it(
    offered: int, alarm: bool, configuration: str
) -> None:
    """The same late answers condemn a kernel within its capacity (400 a second) and not one beyond it."""
    layout = make_layout(kernels=1, slices=2, per_kernel=4)
    edits = late(60.0, offered)
    ticks = run(make_configuration(configuration, make_fleet(layout)), script(layout, 190, edits))
    assert any(decision.judgement.alarm[0, 0].any() for decision in ticks.decisions) == alarm
