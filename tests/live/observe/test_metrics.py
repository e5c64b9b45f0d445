"""Reading ``/metrics``: names as in vLLM, absent values are unknown, garbage is an error."""

from __future__ import annotations

import pytest

from live.errors import LiveError
from live.observe.metrics import COUNTERS, GAUGES, HISTOGRAMS, parse_reading
from tests.support.servers.engine_readings import histograms
from tests.support.servers.prometheus_text import metrics_text

EDGES = (0.01, 0.1, float("inf"))
COUNTED = {field: 10.0 + at for at, field in enumerate(COUNTERS)}
SHOWN = dict.fromkeys(GAUGES, 0.5)
TIMED = dict.fromkeys(HISTOGRAMS, (EDGES, (1.0, 2.0, 3.0)))


def test_every_field_is_read_by_its_name() -> None:
    """A server's written values are read back."""
    reading = parse_reading(metrics_text(COUNTED, SHOWN, TIMED), 5.0)
    assert dict(reading.counters) == COUNTED
    assert dict(reading.gauges) == SHOWN
    assert {family: (one.edges_s, one.counts) for family, one in histograms(reading).items()} == TIMED
    assert (reading.read_at_s, reading.started_at_s) == (5.0, 1000.0)


def test_what_is_not_exported_is_left_out() -> None:
    """An absent or renamed name is unknown, not zero."""
    reading = parse_reading("other_metric 3\n", 5.0)
    assert not reading.counters
    assert not reading.gauges
    assert not histograms(reading)
    assert reading.started_at_s is None


def test_engines_of_one_server_are_added_up() -> None:
    """Data parallel engines export one row each."""
    rows = "".join(f'vllm:num_requests_running{{engine="{at}",model_name="m"}} 2.0\n' for at in range(3))
    assert parse_reading(rows, 0.0).gauges == {"running": 6.0}


@pytest.mark.parametrize("text", ["{{{", "<html>busy</html>", "vllm:x one"])
def test_garbage_is_an_error(text: str) -> None:
    """A server that answers something else is no reading."""
    with pytest.raises(LiveError, match="no Prometheus text"):
        parse_reading(text, 0.0)
