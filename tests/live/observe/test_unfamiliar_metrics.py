"""Texts of ``/metrics`` from other servers, versions and gateways than the best-known one."""

from __future__ import annotations

import pytest

from live.observe.metrics import COUNTERS, FORMER, GAUGES, HISTOGRAMS, parse_reading
from live.observe.scraper import LayoutReader
from tests.support.servers.engine_readings import histograms, told
from tests.support.servers.prometheus_text import metrics_text

EDGES = (0.01, 0.1, float("inf"))
COUNTED = {field: 10.0 + at for at, field in enumerate(COUNTERS)}
TEXT = metrics_text(COUNTED, dict.fromkeys(GAUGES, 0.5), dict.fromkeys(HISTOGRAMS, (EDGES, (1.0, 2.0, 3.0))))
KV = "vllm:kv_cache_usage_perc"


def formerly(text: str) -> str:
    """``text`` with the names of earlier versions."""
    for now, before in FORMER.items():
        text = text.replace(now + "{", before + "{")
    return text


def openmetrics(text: str) -> str:
    """``text`` with OpenMetrics additions: exemplars, creation times, units and an end."""
    lines = []
    for line in text.splitlines():
        exemplar = line.startswith("vllm:") and "_bucket" in line
        lines.append(f'{line} # {{trace_id="a {{b # c"}} 0.3 1700000000.1' if exemplar else line)
    return "\n".join(
        [*lines, 'vllm:request_success_created{engine="0"} 1.7e9', "# UNIT x seconds", "# EOF", ""]
    )


@pytest.mark.parametrize("write", [formerly, openmetrics, lambda text: text + text])
def test_another_way_to_say_the_same_reads_alike(write: object) -> None:
    """Former names, OpenMetrics, and every series twice: the same reading, at the first scrape and later."""
    assert callable(write)
    expected, reader = told(parse_reading(TEXT, 5.0)), LayoutReader()
    for _ in range(3):
        assert told(reader.read("a", write(TEXT), 5.0)) == expected


def test_a_name_and_its_former_one_are_not_added_up() -> None:
    """Intermediate versions export both; the current one counts."""
    both = TEXT + formerly(TEXT).replace(" 0.5", " 0.25")
    assert told(parse_reading(both, 5.0)) == told(parse_reading(TEXT, 5.0))


def test_a_former_name_alone_is_read_with_its_histogram() -> None:
    """A server of an earlier version is not unknown because of its names."""
    found = parse_reading(formerly(TEXT), 5.0)
    assert found.gauges["kv_used_ratio"] == 0.5
    assert found.counters["inter_tokens"] == COUNTED["inter_tokens"]
    assert histograms(found)["inter_token_ms"].counts == (1.0, 2.0, 3.0)


def test_engines_of_one_server_share_its_kv_blocks() -> None:
    """Requests of data parallel ranks and models add up, a ratio does not: half full twice is half full."""
    rows = [
        f'{name}{{engine="{engine}",model_name="{model}"}} {value}\n'
        for name, value in ((KV, 0.6), ("vllm:num_requests_running", 3.0))
        for engine, model in (("0", "base"), ("1", "base"), ("0", "adapter"))
    ]
    assert parse_reading("".join(rows), 5.0).gauges == {"running": 9.0, "kv_used_ratio": pytest.approx(0.6)}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "-0.5", "9e999"])
def test_what_no_count_can_be_is_unknown(value: str) -> None:
    """Any such number, on a known layout as well as at first; all others are read."""
    for name in (*COUNTERS.values(), *GAUGES.values()):
        lines = [f"{line.rpartition(' ')[0]} {value}" if line.startswith(name + "{") else line
                 for line in TEXT.splitlines()]  # fmt: skip
        reader = LayoutReader()
        reader.read("a", TEXT, 1.0)
        for _ in range(2):
            found = reader.read("a", "\n".join([*lines, ""]), 2.0)
            known = {*found.counters.items(), *found.gauges.items()}
            expected = {f: v for f, v in COUNTED.items() if COUNTERS[f] != name}
            expected |= {f: 0.5 for f, sample in GAUGES.items() if sample != name}
            assert known == set(expected.items()), name
