"""The sample in a namespace with real servers behind its EndpointSlices, probed by the operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from contracts.telemetry import SampleRates
from k8s.operator.admission import Documents
from k8s.operator.namespace import NamespaceOperator
from k8s.operator.records.journal import open_journal
from k8s.operator.records.log_space import LogSpace
from k8s.operator.telemetry.pool_reader import PoolReader, Sensing
from k8s.operator.telemetry.pool_source import PoolSource, Watching
from k8s.operator.telemetry.probing import Access, Probing, probe_rates
from live.observe.scraper import Scraper
from live.run.options import ProbeOptions
from tests.support.cluster.cluster_worlds import SHED, Bench

#: Limit of turns for every wait; a tenth of it is usual.
PATIENCE = 400
#: Time limit of requests to servers, s; a passing test never reaches it.
LIMIT_S = 60.0


class OwnScraper(Scraper, PoolReader):
    """A scraper of one pool alone."""


@dataclass
class ProbedWorld:
    """An operator with a real prober. answers: answered probes, by replica."""

    bench: Bench
    operator: NamespaceOperator
    answers: Counter[str] = field(default_factory=Counter)

    def turns_until(self, holds: Callable[[], bool]) -> None:
        """Turn until ``holds``; the clock moves on once servers have answered, however slow they are."""
        for _ in range(PATIENCE):
            self.bench.turns(self.operator, 1)
            self._count()
            if holds():
                return
            self._await_answers()
        raise AssertionError(f"it did not happen: {self.bench.conditions()}, {self.answers}")

    def probed(self, replicas: int, times: int) -> bool:
        """Whether this many replicas have answered this many probes each."""
        return len(self.answers) == replicas and min(self.answers.values()) >= times

    def _count(self) -> None:
        loop = self.operator.loops["chat"]
        turn = loop.standing.turn
        if turn is not None and turn.telemetry is not None:
            probes = turn.telemetry.probes
            names = loop.setup.layout.replicas
            self.answers.update(names[at] for at in probes.replica[probes.valid].tolist())

    def _await_answers(self) -> None:
        """Wait until all requests to servers are answered or timed out."""
        source: Any = self.operator.loops["chat"].source
        prober = source._prober._prober
        asked: list[Future[Any] | None] = [source._prober._asked, source._fleet._scrape]
        asked += [] if prober is None else [one.answer for one in prober._flying]
        wait([one for one in asked if one is not None], timeout=2 * LIMIT_S)


@contextmanager
def probed_world(
    bench: Bench, folder: Path, ports: Mapping[str, int], replicas: int = 2, key: str = ""
) -> Iterator[ProbedWorld]:
    """The sample with ``replicas`` of each kernel at ``ports``, and an operator that has ``key``."""
    bench.everything()
    for name, port in ports.items():
        bench.endpoints(name, [f"chat-{name}-{n}" for n in range(replicas)], port)
    options = ProbeOptions(tokens_per_s=640.0, limit_s=LIMIT_S)
    probing = Probing(options=options, references=folder / "references", access=Access(api_key=key))

    def rates(documents: Documents) -> SampleRates:
        return probe_rates(probing, [one.name for one in documents.contract.spec.slices], 1.0)

    with ExitStack() as stack:
        client = stack.enter_context(httpx.Client())

        def source(sensing: Sensing) -> PoolSource:
            return PoolSource(sensing, Watching(probing=probing), OwnScraper(timeout_s=LIMIT_S), client, SHED)

        journal = partial(open_journal, LogSpace(folder / "log"))
        operator = bench.operator(source=source, journal=journal, rates=rates)
        stack.callback(operator.forget)
        yield ProbedWorld(bench=bench, operator=operator)
