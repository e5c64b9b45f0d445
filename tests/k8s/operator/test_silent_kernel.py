"""A kernel whose numbers go wrong in silence, found by probes of pods and left by the route."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import pytest

from contracts.telemetry import SampleRates
from k8s.operator.journal import open_journal
from k8s.operator.namespace import NamespaceOperator
from k8s.operator.probing import Access, Probing, probe_rates
from k8s.operator.route_loop import Sensing
from k8s.operator.watching import PoolSource, Watching
from live.control.journal import read_log
from live.control.replay import replay
from live.observe.scraper import Scraper
from live.run.options import ProbeOptions, setup_again
from tests.support.cluster_worlds import SHED, Bench
from tests.support.token_servers import TokenServer, token_server

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.timeout(600)]

KEY = "sk-only-for-this-test"
#: Turns in which anything must have happened; a tenth of it is usual.
PATIENCE = 400


@dataclass
class World:
    """The sample in a namespace, with real servers and a real prober."""

    bench: Bench
    fp8: TokenServer
    bf16: TokenServer
    operator: NamespaceOperator

    def turns_until(self, holds: Callable[[], bool]) -> None:
        """Turn until ``holds``; each turn leaves the servers time to answer."""
        for _ in range(PATIENCE):
            self.bench.turns(self.operator, 1)
            if holds():
                return
            time.sleep(0.03)
        raise AssertionError(f"it did not happen: {self.bench.conditions()}")

    def probed(self, answers: int) -> bool:
        """Whether every server was asked so often."""
        return all(
            len(one.asked) == 2 and min(one.asked.values()) >= answers for one in (self.fp8, self.bf16)
        )


@contextmanager
def world(bench: Bench, folder: Path, key: str = KEY) -> Iterator[World]:
    """Servers that want ``KEY``, and an operator that has ``key``."""
    with ExitStack() as stack:
        fp8, bf16 = (stack.enter_context(token_server(KEY)) for _ in range(2))
        bench.everything()
        for name, server in (("fp8", fp8), ("bf16", bf16)):
            bench.endpoints(name, [f"chat-{name}-{n}" for n in range(2)], server.port)
        access = Access(api_key=key)
        options = ProbeOptions(tokens_per_s=640.0, limit_s=60.0)
        probing = Probing(options=options, references=folder / "references", access=access)
        scraper = stack.enter_context(Scraper(timeout_s=30.0))
        client = stack.enter_context(httpx.Client())
        rates: Callable[..., SampleRates] = lambda contract: probe_rates(  # noqa: E731
            probing, [one.name for one in contract.spec.slices], 1.0
        )

        def source(sensing: Sensing) -> PoolSource:
            return PoolSource(sensing, Watching(probing=probing), Unclosed(scraper), client, SHED)

        operator = bench.operator(source=source, journal=partial(open_journal, folder / "log"), rates=rates)
        stack.callback(operator.forget)
        yield World(bench=bench, fp8=fp8, bf16=bf16, operator=operator)


class Unclosed:
    """A scraper that the test closes itself."""

    def __init__(self, inner: Scraper) -> None:
        self.scrape = inner.scrape

    def close(self) -> None:
        """Others go on asking."""


def test_a_silently_wrong_kernel_is_left_and_the_log_says_why(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A kernel that begins to answer with other log-probabilities loses its traffic, and the log says why."""
    caplog.set_level(logging.DEBUG)
    with world(bench, tmp_path) as here:
        here.turns_until(lambda: here.probed(20))
        assert bench.weights("prose")["chat-fp8"] == 10_000
        here.fp8.shift = 0.4
        here.turns_until(lambda: bench.weights("prose")["chat-bf16"] == 10_000)
        assert bench.weights("numbers")["chat-bf16"] == 10_000
        assert bench.conditions()["Degraded"] == ("True", "HardClauseBroken")
        assert here.fp8.refused == here.bf16.refused == 0
        status = bench.read("RoutePolicy", "chat")["status"]
    rows = read_log(tmp_path / "log" / "chat")
    moved = [one for one in rows if one["kind"] == "tick" and one["moves"] and one["executed"]]
    because = " ".join(reason for one in moved for move in one["moves"] for reason in move["because"])
    assert "N-kl-mean" in because
    assert any("N-kl-mean" in one.message and "because" in one.message for one in caplog.records)
    assert replay(rows, setup_again(rows[0]["documents"]).setup).identical
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert KEY not in caplog.text + str(status)
    assert KEY.encode() not in written


def test_servers_that_refuse_the_key_are_neither_bad_nor_good(bench: Bench, tmp_path: Path) -> None:
    """Where the servers refuse the key nothing is known: nothing moves, and it is said without the key."""
    with world(bench, tmp_path, key="wrong-key-of-the-test") as here:
        here.turns_until(lambda: bench.conditions().get("TelemetryFresh") == ("True", "PartlySeen"))
        bench.turns(here.operator, 10)
        assert bench.weights("prose")["chat-fp8"] == 10_000
        assert bench.conditions()["Degraded"] == ("True", "NotSeen")
        assert bench.conditions()["Ready"][0] == "True"
        status = str(bench.read("RoutePolicy", "chat")["status"])
    assert "HTTP 401" in status
    assert "wrong-key-of-the-test" not in status
