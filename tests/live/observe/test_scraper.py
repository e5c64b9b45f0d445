"""Reading by layout: equal to the full parse for any text, which is only done when the layout changes."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.errors import LiveError
from live.observe import scraper
from live.observe.metrics import COUNTERS, GAUGES, HISTOGRAMS, EngineReading, parse_reading
from live.observe.scraper import AT_ONCE, LayoutReader, Scraper
from tests.support.servers.engine_readings import told
from tests.support.servers.prometheus_text import metrics_text

EDGES = (0.01, 0.1, float("inf"))
COUNTED = {field: 10.0 + at for at, field in enumerate(COUNTERS)}
TEXT = (
    "# HELP python_info About.\n# TYPE python_info gauge\n"
    'python_info{version="3.12"} 1.0\n'
    + metrics_text(COUNTED, dict.fromkeys(GAUGES, 0.5), dict.fromkeys(HISTOGRAMS, (EDGES, (1.0, 2.0, 3.0))))
    + 'vllm:request_success_total{engine="1",finished_reason="length"} 4\n'
    "vllm:lora_requests_info 7.0\n"
)
LINES = TEXT.split("\n")
PIECES = st.sampled_from(
    ["{", "}", '"', " ", "\t", "_", "#", "\n", "\r", "1", "e", "9e999", "nan", "+Inf", "-0", " 5",
     ' # {a="b"} 5']
    + [line for line in LINES if "python" in line or "running" in line]
    + ["vllm:num_requests_running", "vllm:num_requests_running 3", "9" * 400]
)  # fmt: skip


def said(read: Callable[[], EngineReading]) -> str:
    """The reading, or that there is none, as text, so that NaN equals NaN."""
    try:
        return repr(told(read()))
    except LiveError:
        return "no Prometheus text"


@st.composite
def mutations(draw: st.DrawFn) -> str:
    """A text like ``TEXT`` except for a few lines, characters or numbers."""
    lines = list(LINES)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        line = lines[at]
        match draw(st.sampled_from(["remove", "repeat", "swap", "number", "insert", "cut", "name"])):
            case "remove":
                lines.pop(at)
            case "repeat":
                lines.insert(draw(st.integers(0, len(lines))), line)
            case "swap":
                lines[at], lines[-2] = lines[-2], line
            case "number":
                lines[at] = f"{line.rpartition(' ')[0]} {draw(st.floats())!r}"
            case "insert":
                place = draw(st.integers(0, len(line)))
                lines[at] = line[:place] + draw(PIECES) + line[place:]
            case "cut":
                lines[at] = line[: draw(st.integers(0, len(line)))]
            case _:
                lines[at] = line.replace(draw(st.sampled_from("aeiou_:")), "x", 1)
        lines = lines or [""]
    return "\n".join(lines)


@given(st.lists(mutations(), min_size=1, max_size=4))
def test_any_text_after_any_other_reads_as_a_whole_parse(texts: list[str]) -> None:
    """An earlier layout changes no reading and no refusal."""
    reader = LayoutReader()
    for at, text in enumerate([*texts, texts[0]]):
        by_layout, whole = partial(reader.read, "a", text, at), partial(parse_reading, text, at)
        assert said(by_layout) == said(whole)


def test_a_text_of_the_known_layout_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second text of a server, with other numbers, needs no parser."""
    reader = LayoutReader()
    reader.read("a", TEXT, 0.0)
    monkeypatch.setattr(scraper, "read_samples", None)
    moved = TEXT.replace(" 0.5\n", " 7\n").replace("} 10.0\n", "} 1e3\n")
    assert moved != TEXT
    assert told(reader.read("a", moved, 1.0)) == told(parse_reading(moved, 1.0))


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(2**70), 2**70).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=6).map(str),
    st.from_regex(r"-?[0-9]{0,18}\.?[0-9]{0,18}([eE][-+]?[0-9]{1,3})?", fullmatch=True),
    st.text("0123456789.-+eE", max_size=12),
)


@given(st.lists(NUMBERS, min_size=1, max_size=8))
def test_a_number_is_what_float_reads(numbers: list[str]) -> None:
    """A value in a known layout is read as by ``float``, bit for bit; other tokens mean another layout."""
    layout = LayoutReader()
    lines = [f'vllm:num_requests_running{{engine="{at}"}} ' for at in range(len(numbers))]
    layout.read("a", "".join(f"{line}1\n" for line in lines), 0.0)
    text = "".join(f"{line}{number}\n" for line, number in zip(lines, numbers, strict=True))
    found = layout._of_server["a"].values(text)
    expected = [as_float(number) for number in numbers]
    if None in expected:
        assert found is None
    else:
        assert found is not None
        assert found.tobytes() == np.array(expected).tobytes()


def as_float(text: str) -> float | None:
    """The value of ``float``; None if it is not a finite number."""
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


@pytest.mark.parametrize(
    ("line", "key"),
    [("vllm:num_requests_running", "running"), ("vllm:kv_cache_usage_perc", "kv_used_ratio")],
)
def test_a_name_that_is_gone_or_new_is_unknown(line: str, key: str) -> None:
    """An absent or renamed sample is left out at the same scrape."""
    reader = LayoutReader()
    reader.read("a", TEXT, 0.0)
    renamed = TEXT.replace(f"{line}{{", f"{line}_now{{")
    assert key not in reader.read("a", renamed, 1.0).gauges
    assert key in reader.read("a", TEXT, 2.0).gauges


def test_servers_of_one_layout_share_it() -> None:
    """Many servers of one build share the memory of one layout."""
    reader = LayoutReader()
    for name in ("a", "b"):
        reader.read(name, TEXT, 0.0)
    assert reader._of_server["a"] is reader._of_server["b"]


def test_servers_that_hang_hold_up_no_scrape_of_others() -> None:
    """A scraper shared by pools reads the servers that answer, however many of another pool do not."""
    begun, end = threading.Semaphore(0), threading.Event()
    late = True

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host != "well":
            if late:
                raise httpx.ReadTimeout("late", request=request)
            begun.release()
            end.wait(60.0)
        return httpx.Response(200, text=TEXT)

    hanging = {f"a-{n}": f"http://hangs-{n}" for n in range(4 * AT_ONCE)}
    client = httpx.Client(transport=httpx.MockTransport(answer))
    with Scraper(client=client) as scraper, ThreadPoolExecutor(2) as callers:
        assert scraper.scrape(hanging) == {}
        late = False
        first = callers.submit(scraper.scrape, hanging)
        for _ in range(AT_ONCE):
            assert begun.acquire(timeout=60.0)
        other = callers.submit(scraper.scrape, {"b-0": "http://well"})
        try:
            assert set(other.result(timeout=30.0)) == {"b-0"}
            assert not first.done()
        finally:
            end.set()
        assert set(first.result(timeout=60.0)) == set(hanging)


@pytest.mark.parametrize("seconds", [20.0, 40.0])
def test_a_scrape_has_the_time_that_it_is_given(seconds: float) -> None:
    """The client's limit is the option's."""
    asked: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.extensions["timeout"]["read"])
        return httpx.Response(200, text=TEXT)

    with Scraper(seconds, httpx.Client(transport=httpx.MockTransport(answer))) as scraper:
        assert set(scraper.scrape({"a-0": "http://a"})) == {"a-0"}
    assert len(asked) == 1
    assert 0.0 < asked[0] <= seconds
    assert asked[0] > seconds / 2.0
