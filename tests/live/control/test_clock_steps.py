"""Steps of the system clock between an answer and its reading leave all ages and times correct."""

from __future__ import annotations

import time

import httpx
import numpy as np
import pytest

from contracts.telemetry import ProbeSamples
from contracts.units import MS_PER_S
from live.bounded_http import system_clock_ahead_s
from live.control.clocks import SteadyClock
from live.control.source import FleetSource, SourceParts
from live.observe.scraper import Scraper
from live.probe.prefill import ProbeResult, timed_outcome
from live.run.urls import UrlDiscovery, replica_addresses
from tests.support.fleets.builders import make_layout

LAYOUT = make_layout(kernels=1, slices=1, per_kernel=1)
TEXT = "vllm:num_requests_running 2\nvllm:generation_tokens_total {}\nprocess_start_time_seconds 5\n"


class SystemClock:
    """A system clock that is set forward and back."""

    def __init__(self) -> None:
        self.step_s, self._now = 0.0, time.time

    def __call__(self) -> float:
        """Unix time, as it is now."""
        return self._now() + self.step_s


class OneProbe:
    """A probe is sent in every tick, and the clock steps before its answer is read."""

    def __init__(self, clock: SystemClock, step_s: float) -> None:
        self._clock, self._step_s = clock, step_s

    def step(self, now_s: float) -> ProbeSamples:
        """The answer of a prober."""
        del now_s
        sent_at_s = timed_outcome(lambda: ProbeResult(None, {}), 1.0).sent_at_s
        self._clock.step_s += self._step_s
        none = np.zeros((1, 1), dtype=np.int64)
        shape = (1, 1, len(LAYOUT.probe_metrics))
        return ProbeSamples.of_results(
            replica=none,
            slice=none,
            prompt=none,
            sampled_at_ms=np.array([[sent_at_s * MS_PER_S]]),
            values=np.zeros(shape),
            valid=np.ones((1, 1), dtype=np.bool_),
        )


class Exporting:
    """A server that wrote seven tokens more at each scrape, during which the clock steps."""

    def __init__(self, clock: SystemClock, step_s: float) -> None:
        self._clock, self._step_s, self._tokens = clock, step_s, 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Its answer; the clock steps before it is read."""
        if request.url.path != "/metrics":
            return httpx.Response(200, json={})
        self._tokens += 7
        self._clock.step_s += self._step_s
        return httpx.Response(200, text=TEXT.format(self._tokens))


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_a_step_between_an_answer_and_its_reading_moves_no_instant(
    step_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times of scrapes and probes are between the ticks around them, and counters give their rise."""
    clock = SystemClock()
    monkeypatch.setattr(time, "time", clock)
    client = httpx.Client(transport=httpx.MockTransport(Exporting(clock, step_s)))
    steady = SteadyClock()
    name = LAYOUT.replicas[0].rpartition("-")[0]
    discovery = UrlDiscovery(replica_addresses({name: ["http://a"]}), client, "m")
    discovery.refresh()
    parts = SourceParts(
        layout=LAYOUT,
        discovery=discovery,
        scraper=Scraper(timeout_s=30.0, client=client),
        clock=steady,
        prober=OneProbe(clock, step_s),
    )
    source, began_ms = FleetSource(parts), steady.now_ms()
    seen: list[float] = []
    try:
        while len(seen) < 3:
            found, now_ms = source.read(), steady.now_ms()
            assert began_ms - 1.0 <= found.probes.sampled_at_ms[0, 0] <= found.now_ms[0] <= now_ms
            at_ms = found.scraped_at_ms[0, 0]
            if np.isfinite(at_ms):
                assert began_ms - 1.0 <= at_ms <= found.now_ms[0]
            if np.isfinite(found.engine.generation_tokens[0, 0]):
                seen.append(found.engine.generation_tokens[0, 0])
    finally:
        source.close()
        discovery.close()
    assert seen == [7.0, 7.0, 7.0]
    assert abs(clock.step_s) >= 3 * 3600.0


def test_dates_of_other_machines_follow_the_system_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dates from another machine are corrected by the steps of the system clock since the start."""
    before_s = system_clock_ahead_s()
    clock = SystemClock()
    monkeypatch.setattr(time, "time", clock)
    clock.step_s = 3600.0
    assert system_clock_ahead_s() - before_s == pytest.approx(3600.0, abs=60.0)
