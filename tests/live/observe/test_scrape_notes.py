"""Servers with implausible or unreadable metrics: reported by name, unknown to the controller, no fault."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler

import numpy as np
import pytest

from contracts.telemetry import FleetTelemetry
from controller.initial import initial_state
from controller.loop import tick
from live.control.source import NO_ROWS
from live.observe.metrics import EngineReading, parse_reading
from live.observe.passive import ANSWERS, PAST, PassiveWatch
from live.observe.record import TelemetryRecorder
from live.observe.scrape_notes import UNREAD, ScrapeNote, ScrapeWatch
from live.observe.scraper import Scraper
from live.observe.trust import SETTLING, CounterTrust, FleetTrust
from policies.registry import make_configuration
from tests.live.observe.test_traffic import LAYOUT
from tests.support.fleets.builders import make_fleet, make_layout, no_probes
from tests.support.fleets.worlds import script
from tests.support.servers.listening import answered_by
from tests.support.servers.prometheus_text import metrics_text
from tests.support.servers.scraped_server import METRICS

EDGES = (0.5, 60.0, float("inf"))


def text(at: int, ahead: float, late: float = 0.0, started: bool = True) -> str:
    """Scrape number ``at`` of an engine that had counted ``ahead`` answers, ``late`` of them late, before."""
    done = ahead + 10.0 * at
    counted = dict.fromkeys(("iterations", "generation_tokens", "finished", "prompt_tokens"), done)
    timed = (EDGES, (done - late, done, done))
    found = metrics_text(
        counted,
        dict.fromkeys(("running", "waiting", "kv_used_ratio"), 0.0),
        {"latency_ms": timed, "ttft_ms": timed},
    )
    return found if started else "\n".join(found.splitlines()[2:]) + "\n"


def balanced(at: int, started: bool = False) -> str:
    """Two engines in turn; one of them had been late in the past."""
    return text(at, *((0.0, 0.0) if at % 2 else (5000.0, 4500.0)), started=started)


def noted(texts: list[str]) -> dict[str, ScrapeNote]:
    """Notes on one server, by kind."""
    watch = ScrapeWatch()
    for at, told in enumerate(texts):
        watch.receive({"a-0": parse_reading(told, float(at))})
    return {what: note for (_, what), note in watch.in_force().items()}


def counted(texts: list[str]) -> list[tuple[float, int]]:
    """Answers by the counters, and by the histogram, of each scrape as the controller sees them."""
    recorder = TelemetryRecorder(LAYOUT, {})
    found = []
    for at, told in enumerate(texts):
        readings = {"a-0": parse_reading(told, float(at))}
        seen = recorder.record(float(at), (), readings, NO_ROWS, no_probes(1, 0, 0))
        found.append((float(seen.engine.finished[0, 0]), int(seen.latency_le[0, 0, 0, -1])))
    return found


def test_a_proxy_before_several_engines_counts_nothing_and_is_named() -> None:
    """If no process start is stated, a rise between two engines is no traffic: none of it is believed."""
    texts = [balanced(at) for at in range(3 * SETTLING)]
    assert all(np.isnan(finished) and answers == 0 for finished, answers in counted(texts))
    assert "several engines behind one URL" in noted(texts)["mixed"].told


def test_engines_in_turn_that_state_their_start_are_named() -> None:
    """A start time that returns is no restart."""
    texts = [text(at, 0.0).replace("1000.0", str(1000.0 + at % 2)) for at in range(6)]
    assert "several processes answer there in turn" in noted(texts)["mixed"].told
    assert "mixed" not in noted([text(at, 0.0).replace("1000.0", str(1000.0 + at)) for at in range(6)])


def test_counters_that_are_reset_at_each_scrape_are_named_and_count_nothing() -> None:
    """A server that exports increments instead of counters: falls without a new process."""
    texts = [text(at % 3, 0.0) for at in range(2 * SETTLING)]
    assert "counters that are reset" in noted(texts)["mixed"].told
    assert all(np.isnan(finished) for finished, _ in counted(texts)[4:])


def test_counters_of_one_process_count_at_once_and_without_a_start_time_after_a_while() -> None:
    """At once if the start time is stated; else after no counter fell for long enough."""
    assert counted([text(at, 0.0) for at in range(3)])[1:] == [(10.0, 10), (10.0, 10)]
    unnamed = counted([text(at, 0.0, started=False) for at in range(SETTLING + 3)])
    assert all(np.isnan(finished) for finished, _ in unnamed[:SETTLING])
    assert unnamed[SETTLING + 1 :] == [(10.0, 10), (10.0, 10)]


def test_two_engines_at_random_are_hardly_ever_believed() -> None:
    """A proxy that chooses at random keeps from falling for so long in 3 of 1,000 cases."""
    rng = np.random.Generator(np.random.PCG64(1))
    believed = 0
    for _ in range(300):
        trust, turns = CounterTrust(), rng.integers(0, 2, 2 * SETTLING)
        believed += any(
            trust.take(None, np.array([at + 1e6 * engine])) for at, engine in enumerate(turns.tolist())
        )
    assert believed <= 12


@pytest.mark.parametrize("seed", range(4))
def test_one_trust_tells_all_listeners_what_one_each_would(seed: int) -> None:
    """Whichever reader sees a scrape first, and however often: counts and notes are those of one reader."""
    rng = np.random.Generator(np.random.PCG64(seed))
    texts = [balanced(int(at) if rng.random() < 0.8 else 0, bool(rng.random() < 0.3)) for at in range(60)]
    trust = FleetTrust()
    watch, alone = ScrapeWatch(trust=trust), ScrapeWatch()
    recorder = TelemetryRecorder(LAYOUT, {}, trust)
    found = []
    for at, told in enumerate(texts):
        readings = {"a-0": parse_reading(told, float(at))}
        if at % 2:
            watch.receive(readings)
        seen = recorder.record(float(at), (), readings, NO_ROWS, no_probes(1, 0, 0))
        if not at % 2:
            watch.receive(readings)
        alone.receive(readings)
        found.append((float(seen.engine.finished[0, 0]), int(seen.latency_le[0, 0, 0, -1])))
    assert repr(found) == repr(counted(texts))  # NaN does not equal NaN
    assert watch.changes() == alone.changes()


def test_what_is_over_is_said_once() -> None:
    """Counters that rise again for long enough end it; both changes can be logged and dropped."""
    watch = ScrapeWatch()
    texts = [balanced(at) for at in range(6)] + [text(at, 9e3, started=False) for at in range(6, 80)]
    for at, told in enumerate(texts):
        watch.receive({"a-0": parse_reading(told, float(at))})
    mixed = [one.began for one in watch.changes() if one.what == "mixed"]
    assert mixed == [True, False]
    watch.drop(len(watch.changes()))
    assert watch.changes() == []


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-3"])
def test_numbers_that_are_none_and_names_that_lack_are_told_apart(value: str) -> None:
    """Names are those that the server uses; a server with every metric has no note."""
    odd = METRICS.replace("vllm:num_requests_running 0.0", f"vllm:num_requests_running {value}")
    found = noted([odd])
    assert found["no_numbers"].told.endswith(": vllm:num_requests_running")
    assert "vllm:num_preemptions_total" in found["lacking"].told
    assert "vllm:num_requests_running" not in found["lacking"].told
    assert "no_numbers" not in noted([METRICS])


def test_a_mixed_server_raises_no_passive_alarm() -> None:
    """Jumps between two engines of different users are no change in the answers."""
    watch = PassiveWatch()
    name = 'vllm:request_success_total{finished_reason="%s"} %d\n'
    for at in range(8 * PAST):
        ahead, cut = (0, 0) if at % 2 else (100_000, 90_000)
        done = ahead + ANSWERS * at
        told = name % ("stop", done - cut) + name % ("length", cut)
        watch.receive({"a-0": parse_reading(told, float(at))})
    assert not any(watch.alarms().values())
    assert watch.changes() == []


def moved(ticks: int = 60) -> bool:
    """Whether a controller moves anything, or quarantines the one replica behind such a proxy."""
    layout = make_layout(kernels=2, slices=1, per_kernel=2)
    setup = make_configuration("sequential", make_fleet(layout))
    recorder = TelemetryRecorder(layout, {})

    def edit(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        readings = {layout.replicas[0]: parse_reading(balanced(int(now_s)), now_s)}
        mine = recorder.record(now_s, (), readings, NO_ROWS, seen.probes)
        seen.latency_le[:, 0] = mine.latency_le[:, 0]
        return replace(seen, engine=mine.engine)

    state, changed = initial_state(setup, 1), False
    for seen in script(layout, ticks, edit):
        state, decision = tick(state, seen, setup)
        changed |= bool(decision.moved[0]) and int(state.ticks[0]) > 1
        changed |= bool(decision.quarantined.any())
    return changed


def test_a_proxy_before_several_engines_moves_no_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past lateness of one of them does not count as late answers today; if believed, it would."""
    assert not moved()
    monkeypatch.setattr(CounterTrust, "take", lambda *_: True)
    assert moved()


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """The URL of a server that answers /metrics by ``answer``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            pass

    with answered_by(Handler) as url:
        yield url


def says(status: int, body: bytes, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """A server that answers this."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("content-length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return answer


def scraped(url: str, times: int, timeout_s: float = 30.0) -> tuple[list[EngineReading], list[ScrapeNote]]:
    """Readings of one server, and the notes."""
    with Scraper(timeout_s) as scraper:
        watch = ScrapeWatch(lambda: scraper.failed)
        readings: list[EngineReading] = []
        for _ in range(times):
            found = scraper.scrape({"a-0": url})
            readings += found.values()
            watch.receive(found)
        return readings, watch.changes()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (says(503, b""), "HTTP 503"),
        (says(200, b"<html>busy</html>"), "no Prometheus text"),
        (says(200, b"not gzip", content_encoding="gzip"), "DecodingError"),
    ],
)
def test_what_cannot_be_read_is_said_after_a_few_scrapes(
    answer: Callable[[BaseHTTPRequestHandler], None], why: str
) -> None:
    """The reason, once; a single failure is not reported."""
    with answering(answer) as url:
        assert scraped(url, UNREAD - 1) == ([], [])
        readings, notes = scraped(url, UNREAD + 1)
    assert readings == []
    (note,) = notes
    assert (note.replica, note.what, note.began) == ("a-0", "unread", True)
    assert why in note.told


def test_a_server_that_takes_half_a_minute_is_late_and_nothing_else() -> None:
    """Its scrapes end at their time limit, and only this is reported."""
    released = threading.Event()

    def late(_: BaseHTTPRequestHandler) -> None:
        released.wait(29.0)

    with answering(late) as url:
        _, notes = scraped(url, UNREAD, timeout_s=0.05)
        released.set()
    (note,) = notes
    assert "no whole answer within 0.05 s" in note.told


def test_gzip_is_read() -> None:
    """A proxy that compresses changes nothing."""
    packed = gzip.compress(METRICS.encode())
    with answering(says(200, packed, content_encoding="gzip")) as url:
        (reading,), notes = scraped(url, 1)
    assert reading.counters == {"finished": 7.0}
    assert [note.what for note in notes] == ["lacking"]
