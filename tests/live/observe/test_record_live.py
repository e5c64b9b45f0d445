"""Telemetry and probes of real vLLM servers behind a real Envoy: the counts equal the sent load."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import httpx
import numpy as np
import pytest

from contracts.telemetry import FleetTelemetry, ProbeOutcome, ProbeSamples, ReplicaState
from live.fleet.control import down
from live.fleet.state import FleetDiscovery, FleetFolder
from live.gateway.admin import EnvoyAdmin
from live.gateway.statistics import GatewayLogs
from live.load import run_load
from live.measure.backend import TopScores
from live.measure.backends.openai_backend import OpenaiBackend
from live.measure.endpoint import Endpoint
from live.measure.prompts import SHIPPED_PROMPTS, Prompt, load_prompts
from live.observe.record import TelemetryRecorder
from live.observe.sampled import SampledInbox
from live.observe.scraper import Scraper
from live.probe.prober import ProbePlan, Prober
from live.probe.schedule import ProbeBudget
from tests.support.fleets.builders import no_probes
from tests.support.servers.live_fleets import LAYOUT, POOL, REPLICAS, bring_up, load, state_of
from tests.support.waiting import until

pytestmark = [
    pytest.mark.needs("vllm", "torch", "envoy", "aiohttp"),
    pytest.mark.slow,
]
PROBED = replace(LAYOUT, probe_metrics=("kl_mean@top_k", "top1_flip@top_k"))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetFolder]:
    """Three servers of two kernels, forked."""
    folder = bring_up(tmp_path_factory.mktemp("observed"), POOL, "--start", "fork")
    yield folder
    down(folder)


class Watch:
    """Scrapes, rows and discovery of a running fleet, tick by tick."""

    def __init__(self, folder: FleetFolder) -> None:
        self._discovery = FleetDiscovery(folder)
        self._admin = EnvoyAdmin(state_of(folder).gateway.admin_url)
        self._logs = GatewayLogs(folder.gateway, self._admin, LAYOUT.slices)
        self._recorder = TelemetryRecorder(LAYOUT, {})

    def close(self) -> None:
        """Close the connection to Envoy."""
        self._admin.close()

    def tick(self) -> FleetTelemetry:
        """All that arrived since the last one."""
        seen = self._discovery.replicas()
        with Scraper(timeout_s=10.0) as scraper:
            readings = scraper.scrape({one.name: one.url for one in seen})
        return self._recorder.record(time.time(), seen, readings, self._logs.read(), no_probes(1, 0, 0))


def test_what_was_sent_is_what_servers_and_gateway_count(fleet: FleetFolder) -> None:
    """After a load of known size both sources count its requests and tokens; the first scrape counts none."""
    with closing(Watch(fleet)) as watch:
        tell_all(fleet, watch)


def tell_all(fleet: FleetFolder, watch: Watch) -> None:
    """A load of known size, and its counts."""
    first = watch.tick()
    assert np.isnan(first.engine.finished).all()
    assert (first.replica_state == int(ReplicaState.READY)).all()
    records = run_load(load(fleet, 6.0, streamed=1.0))
    assert all(record.complete for record in records)
    told: list[FleetTelemetry] = []

    def counted() -> bool:
        told.append(watch.tick())
        return sum(int(one.answered.sum()) for one in told) >= len(records)

    until(counted)
    finished = np.nansum([one.engine.finished for one in told])
    assert finished == sum(int(one.answered.sum()) for one in told) == len(records)
    assert sum(int(one.offered.sum()) for one in told) == len(records)
    by_kernel = np.sum([one.gateway.answered[0] for one in told], axis=0)
    assert by_kernel.sum(axis=1).tolist() == [
        sum(record.slice == name for record in records) for name in LAYOUT.slices
    ]
    assert (by_kernel * (1 - np.eye(2)) == 0).all()  # every slice at home
    assert np.nansum([one.engine.generation_tokens for one in told]) >= len(records)
    assert sum(int(one.latency_le[0, :, 0, -1].sum()) for one in told) == len(records)
    assert all((one.failed == 0).all() for one in told)


def test_a_replica_answers_a_probe_bit_for_bit_again_and_another_kernel_otherwise(fleet: FleetFolder) -> None:
    """Compared with the single-precision server's answer: itself has no divergence at all, the
    half-precision servers have a small one.
    """
    replicas = FleetDiscovery(fleet).replicas()
    prompts = [
        one for one in load_prompts(SHIPPED_PROMPTS) if one.slice in LAYOUT.slices and one.split == "probe"
    ][:4]
    references, model = answers(next(one.url for one in replicas if one.name == "fp32-0"), prompts)
    plan = ProbePlan(
        prompts=prompts, references=references, budget=ProbeBudget(tokens_per_s=300.0), limit_s=20.0
    )
    samples: list[ProbeSamples] = []
    urls = {one.name: one.url for one in replicas}
    with Prober(PROBED, plan, urls, model, began_at_s=time.time()) as prober:

        def enough() -> bool:
            samples.append(prober.step(time.time()))
            return all(len(values_of(samples, r)) >= 3 for r in range(len(REPLICAS)))

        until(enough)
    assert {int(o) for one in samples for o in one.outcome[0]} == {int(ProbeOutcome.ANSWERED)}
    half, single = values_of(samples, 0), values_of(samples, REPLICAS.index("fp32-0"))
    assert single.max() == 0.0
    assert 0.0 < half[:, 0].max() < 1e-3


def answers(url: str, prompts: list[Prompt]) -> tuple[list[TopScores], str]:
    """A server's answers to each prompt, and the name of its model."""
    backend = OpenaiBackend(Endpoint(url=url))
    with backend.start(backend.kernels[0]) as session:
        scores = [one for one in session.score(prompts) if isinstance(one, TopScores)]
    return scores, backend.identity()[1]


def values_of(samples: list[ProbeSamples], replica: int) -> np.ndarray:
    """Float64 [n, metrics] of a replica's probes."""
    return np.concatenate([one.values[one.valid & (one.replica == replica)] for one in samples])


def test_sampled_log_probabilities_of_a_real_answer_are_taken(fleet: FleetFolder) -> None:
    """The gateway's answer to ``"logprobs": 0`` holds one number per sampled token, which the form of users'
    answers accepts; its header names the replica.
    """
    body = {"model": "selvage", "prompt": [1, 2, 3], "max_tokens": 16, "temperature": 1.0, "logprobs": 0}
    answer = httpx.post(
        f"{state_of(fleet).gateway.url}/v1/completions",
        json=body | {"ignore_eos": True},
        headers={"x-selvage-slice": LAYOUT.slices[0]},
        timeout=60.0,
    )
    found = answer.raise_for_status().json()["choices"][0]["logprobs"]["token_logprobs"]
    assert len(found) == 16
    replica = answer.headers["x-selvage-replica"]
    inbox = SampledInbox(frozenset(REPLICAS), frozenset(LAYOUT.slices))
    told = {"replica": replica, "slice": LAYOUT.slices[0], "logprobs": found}
    assert inbox.post(json.dumps(told).encode(), 0.0) == 1
    (kept,) = inbox.drain()
    assert kept.replica == replica
    assert kept.surprise_nats == pytest.approx(-sum(found) / 16)
