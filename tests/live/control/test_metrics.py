"""Metrics of the controller: bounded labels, unknown as NaN, and alert rules that name existing metrics."""

from __future__ import annotations

import re
from dataclasses import replace

import httpx
import numpy as np
import pytest
import yaml
from prometheus_client import generate_latest

from live.control.loop import ControlPorts, LiveController
from live.control.metrics import ControllerMetrics
from live.errors import LiveError
from policies.registry import make_configuration
from tests.support.fleets.builders import make_fleet, make_layout
from tests.support.fleets.clocks import clocked_fleet, clocks
from tests.support.fleets.fakes import ManualClock, ScriptedTelemetry
from tests.support.fleets.worlds import drift, script
from tests.support.paths import ROOT

LAYOUT = make_layout(kernels=3, slices=2, per_kernel=2)
SETUP = make_configuration("hysteresis", make_fleet(LAYOUT))


def watched(ticks: int) -> ControllerMetrics:
    """Metrics of an observer whose home kernel breaks its contract, and whose source ends after ``ticks``."""
    sent = dict.fromkeys(LAYOUT.replicas, 0)

    def passive() -> dict[tuple[str, str], bool | None]:
        return {("a-0", "corrupted"): None, ("a-0", "length_stops"): True}

    metrics = ControllerMetrics(
        SETUP,
        observes=True,
        sent_tokens=lambda: dict(sent),
        passive=passive,
        scrapes=lambda: {("a-0", "mixed")} if sent[LAYOUT.replicas[0]] < 64 * 20 else set(),
    )
    clock = ManualClock()
    source = ScriptedTelemetry(script(LAYOUT, ticks, drift(LAYOUT, [0, 1], 5.0)))
    one = LiveController(SETUP, ControlPorts(source=source, clock=clock, watchers=(metrics,)))
    for _ in range(ticks + 1):
        sent[LAYOUT.replicas[0]] += 64
        one.step()
        clock.advance(1000.0)
    return metrics


def test_before_anything_is_known_nothing_is_said_to_be_good() -> None:
    """Health, level and ages are NaN until a probe was answered."""
    metrics = ControllerMetrics(SETUP, observes=True, sent_tokens=dict)
    read = metrics.registry.get_sample_value
    for name in ("selvage_health_ratio", "selvage_level_number", "selvage_evidence_age_seconds"):
        value = read(name, {"kernel": "k0", "slice": "s0"})
        assert value is not None
        assert value != value
    age = read("selvage_telemetry_age_seconds")
    assert age is not None
    assert age != age


def test_what_is_usual_of_a_clock_is_unknown_until_it_has_told() -> None:
    """A replica's usual step time, relative to the certified one; NaN before it is known."""
    setup = replace(make_configuration("fixed", clocked_fleet(LAYOUT)), own_clocks="usual")
    metrics = ControllerMetrics(setup, observes=True, sent_tokens=dict)
    source = ScriptedTelemetry(script(LAYOUT, 90, clocks([3.0] * 5 + [np.nan])))
    clock = ManualClock()
    one = LiveController(setup, ControlPorts(source=source, clock=clock, watchers=(metrics,)))
    name, told = "selvage_usual_step_time_ratio", {"replica": LAYOUT.replicas[0]}
    for at in range(90):
        one.step()
        clock.advance(1000.0)
        if at == 20:
            early = metrics.registry.get_sample_value(name, told)
    late = metrics.registry.get_sample_value(name, told)
    silent = metrics.registry.get_sample_value(name, {"replica": LAYOUT.replicas[-1]})
    assert early != early
    assert late == pytest.approx(3.0, rel=0.1)
    assert silent != silent


def test_what_would_have_moved_is_counted_with_its_cause_and_its_cost() -> None:
    """An observer counts moves that were not executed, the kernel's level, probe tokens and failed turns."""
    read = watched(40).registry.get_sample_value
    assert (read("selvage_moves_total", {"slice": "s0", "executed": "false"}) or 0.0) >= 1.0
    assert read("selvage_moves_total", {"slice": "s0", "executed": "true"}) is None
    assert read("selvage_level_number", {"kernel": "k0", "slice": "s0"}) == 2.0
    assert read("selvage_health_ratio", {"kernel": "k1", "slice": "s0"}) == 0.0
    assert read("selvage_probe_tokens_total", {"replica": LAYOUT.replicas[0]}) == 64.0 * 41
    assert read("selvage_errors_total", {"port": "telemetry"}) == 1.0
    assert read("selvage_ticks_total", {"outcome": "decided"}) == 40.0


def test_what_is_odd_about_scrapes_is_shown_until_it_is_over() -> None:
    """1 while an anomaly lasts, 0 afterwards, no sample if there never was one."""
    for ticks, expected in ((10, 1.0), (40, 0.0)):
        read = watched(ticks).registry.get_sample_value
        assert read("selvage_scrape_note_bool", {"replica": "a-0", "what": "mixed"}) == expected
        assert read("selvage_scrape_note_bool", {"replica": "a-0", "what": "lacking"}) is None


def test_alert_rules_name_metrics_and_labels_that_there_are() -> None:
    """Every metric of the shipped rules is exported; every rule's summary names a page."""
    shown = generate_latest(watched(40).registry).decode()
    rules = yaml.safe_load((ROOT / "docs" / "selvage-alerts.yaml").read_text())["groups"][0]["rules"]
    assert len(rules) >= 5
    for rule in rules:
        assert rule["annotations"]["summary"]
        for name in re.findall(r"selvage_[a-z_]+", rule["expr"]):
            assert re.search(rf"^{name}[ {{]", shown, re.MULTILINE), name


def test_metrics_are_offered_on_loopback_and_a_taken_port_is_told() -> None:
    """The text can be fetched; a second server on the port is refused with the next step."""
    metrics = watched(3)
    url, stop = metrics.serve(0)
    try:
        assert url.startswith("http://127.0.0.1:")
        assert "selvage_controller_info" in httpx.get(url, timeout=30.0).text
        with pytest.raises(LiveError, match="--metrics-port"):
            metrics.serve(int(url.split(":")[2].partition("/")[0]))
    finally:
        stop()
