"""A crowded replica is probed within a share of what it serves; what is not known slows nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.measure.endpoint import Endpoint
from live.measure.prompts import dump_prompts
from live.observe.metrics import EngineReading
from live.run.options import ProbeOptions
from live.run.probing import CROWDED, LEAST_PACE, SHARE, ProbeLoadLimiter, probe_plan
from tests.support.servers.bigram_server import FakeServer, prompts
from tests.support.servers.engine_readings import Said

BUDGET = 96.0
#: CPU time of a probe's token over that of a user's, and of a scrape per second in seconds: measured.
PROBE_OVER_USER, SCRAPE_RATIO = 2.8, 0.0053


def reading(at_s: float, tokens: float, running: float, waiting: float = 0.0) -> EngineReading:
    """A scrape after so many tokens of prompts and as many of answers."""
    said = Said(
        read_at_s=at_s,
        gauges={"running": running, "waiting": waiting},
        counters={"prompt_tokens": tokens, "generation_tokens": tokens},
    )
    return said.reading()


def pace(served_per_s: float, running: float, waiting: float = 0.0) -> float:
    """Of a replica that serves so many tokens per second."""
    one = ProbeLoadLimiter(BUDGET)
    assert one.paces({"a": reading(0.0, 0.0, running, waiting)}) == {"a": 1.0}
    return one.paces({"a": reading(2.0, served_per_s, running, waiting)})["a"]


@given(st.floats(0.0, 1e6), st.floats(0.0, 100.0), st.floats(0.0, 100.0))
def test_probes_of_a_crowded_replica_stay_within_their_share(
    served: float, running: float, waiting: float
) -> None:
    """Tokens requested are at most ``SHARE`` of those served, or the least pace; headroom slows no probe."""
    found = pace(served, running, waiting)
    if running + waiting < CROWDED:
        assert found == 1.0
    else:
        assert LEAST_PACE <= found <= 1.0
        assert found * BUDGET <= max(SHARE * served, LEAST_PACE * BUDGET) + 1e-9


def test_the_share_keeps_the_bar_of_two_percent_with_a_scrape_per_second() -> None:
    """By the measured costs: probes at their share and the scrape take at most 2 % of a saturated replica."""
    assert SHARE * PROBE_OVER_USER + SCRAPE_RATIO <= 0.02


def test_a_fast_server_is_probed_at_the_whole_budget_however_crowded() -> None:
    """Where the budget is less than the share of what is served, nothing slows."""
    assert pace(BUDGET / SHARE, running=200.0, waiting=50.0) == pytest.approx(1.0)


def test_what_is_not_known_slows_nothing() -> None:
    """No counters, a counter that fell, and a first scrape are no crowd."""
    one = ProbeLoadLimiter(BUDGET)
    bare = Said(read_at_s=0.0, started_at_s=None, gauges={"running": 99.0}).reading()
    assert one.paces({"a": bare}) == one.paces({"a": bare}) == {"a": 1.0}
    fell = ProbeLoadLimiter(BUDGET)
    fell.paces({"a": reading(0.0, 500.0, 99.0)})
    assert fell.paces({"a": reading(1.0, 10.0, 99.0)}) == {"a": 1.0}


def test_a_reference_is_asked_anew_of_another_model(tmp_path: Path) -> None:
    """What one model answered is right for no other, though both are served under one name."""
    file = tmp_path / "prompts.jsonl"
    file.write_text(dump_prompts([replace(one, split="probe") for one in prompts()]))
    options = ProbeOptions(prompts=file)
    asked = [0, 0]

    def endpoint(number: int) -> Endpoint:
        server = FakeServer(drift=float(number))

        def answer(request: httpx.Request) -> httpx.Response:
            if request.url.path == "/v1/models":
                return httpx.Response(200, json={"data": [{"id": "chat", "root": f"org/Model-{number}"}]})
            asked[number] += b"prompt_logprobs" in request.content
            return server(request)

        return Endpoint(url="http://server", model="chat", transport=httpx.MockTransport(answer))

    plans = [probe_plan(options, ["toy"], endpoint(n), tmp_path / "store", "bf16") for n in (0, 1)]
    assert not np.array_equal(plans[0].references[0].golden, plans[1].references[0].golden)
    measured = list(asked)
    for number, plan in enumerate(plans):
        again = probe_plan(options, ["toy"], endpoint(number), tmp_path / "store", "bf16")
        assert np.array_equal(again.references[0].golden, plan.references[0].golden)
    assert asked == measured  # neither is asked again
