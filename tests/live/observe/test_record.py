"""Engines' and the gateway's counts of the same requests, combined."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from contracts.telemetry import FleetTelemetry
from live.observe.metrics import parse_reading
from live.observe.record import TelemetryRecorder
from tests.live.observe.test_traffic import LAYOUT, sample
from tests.support.fleets.builders import no_probes

SCRAPE = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running {running}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting {waiting}
"""


def told(running: float, waiting: float, active: int | None) -> FleetTelemetry:
    """The record of one scrape of ``a-0``, with this many requests open at the gateway."""
    recorder = TelemetryRecorder(LAYOUT, {})
    reading = parse_reading(SCRAPE.format(running=running, waiting=waiting), 1.0)
    seen = sample(active=active)
    return recorder.record(1.0, (), {"a-0": reading}, replace(seen, requests=()), no_probes(1, 0, 0))


@pytest.mark.parametrize(
    ("running", "waiting", "active", "expected"),
    [(0.0, 0.0, 3, 3.0), (0.0, 0.0, 0, 0.0), (2.0, 0.0, 3, 0.0), (0.0, 1.0, 3, 1.0), (0.0, 0.0, None, 0.0)],
)
def test_requests_open_at_an_engine_that_counts_none_are_waiting(
    running: float, waiting: float, active: int | None, expected: float
) -> None:
    """An engine that hung while idle never counts a request again; any other is believed."""
    record = told(running, waiting, active)
    assert (record.running[0, 0], record.waiting[0, 0]) == (running, expected)
    assert record.waiting[0, 1:].tolist() == [0.0, 0.0]


def test_open_requests_stay_as_last_sampled() -> None:
    """A sample without hosts, as after a failed reading, is no proof that nothing is open."""
    recorder = TelemetryRecorder(LAYOUT, {})
    reading = parse_reading(SCRAPE.format(running=0, waiting=0), 1.0)
    for active in (2, None):
        seen = replace(sample(active=active), requests=())
        record = recorder.record(1.0, (), {"a-0": reading}, seen, no_probes(1, 0, 0))
        assert record.waiting[0, 0] == 2.0


def test_what_the_gateway_has_open_is_of_the_scrape_and_unknown_where_it_tells_nothing() -> None:
    """Three of seven run or wait. A replica that was not scraped keeps what it had; a sample without hosts
    says nothing about any replica.
    """
    recorder = TelemetryRecorder(LAYOUT, {})
    reading = parse_reading(SCRAPE.format(running=2, waiting=1), 1.0)
    seen = []
    for active, readings in ((7, {"a-0": reading}), (9, {}), (None, {"a-0": reading})):
        told_now = replace(sample(active=active), requests=())
        record = recorder.record(1.0, (), readings, told_now, no_probes(1, 0, 0))
        seen.append(record.outside[0].tolist())
    assert [row[0] for row in seen[:2]] == [4.0, 4.0]
    assert all(math.isnan(value) for value in (*seen[0][1:], *seen[2]))


def test_what_is_held_at_an_idle_engine_is_outside_of_it_too() -> None:
    """Hung or slow: the requests that end there decide."""
    record = told(0.0, 0.0, 4)
    assert (record.waiting[0, 0], record.outside[0, 0]) == (4.0, 4.0)
