"""The prober of a live fleet: sends what is due, and hands on what came back as the telemetry record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import httpx
import numpy as np

from contracts.compiled.layout import FleetLayout
from contracts.metrics import COLUMN_NAMES
from contracts.telemetry import ProbeOutcome, ProbeSamples
from contracts.units import MS_PER_S
from live.measure.backend import TopScores
from live.measure.prompts import Prompt
from live.probe.prefill import ProbeAnswer, probe
from live.probe.schedule import Due, ProbeBudget, ProbePrompt, ProbeSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """What is asked. references: what the reference answered, one for each of ``prompts``."""

    prompts: Sequence[Prompt]
    references: Sequence[TopScores]
    budget: ProbeBudget
    limit_s: float = 2.0
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.prompts) != len(self.references):
            raise ValueError(
                f"expected a reference for each of {len(self.prompts)} prompts, got {len(self.references)}"
            )


class Prober:
    """Probes replicas by URL; use as a context. Nothing here raises for what a server does."""

    def __init__(
        self,
        layout: FleetLayout,
        plan: ProbePlan,
        urls: Mapping[str, str],
        model: str,
        began_at_s: float,
        client: httpx.Client | None = None,
    ) -> None:
        """``urls``: replica -> base URL, of replicas of ``layout``. client: with keys and certificates."""
        known = {name: at for at, name in enumerate(layout.slices)}
        prompts = [
            ProbePrompt(known[one.slice], place, len(one.token_ids))
            for place, one in enumerate(plan.prompts)
            if one.slice in known
        ]
        self._layout, self._plan, self._urls, self._model = layout, plan, dict(urls), model
        self._schedule = ProbeSchedule(
            list(urls), prompts, plan.budget, seed=plan.seed, began_at_s=began_at_s
        )
        self._columns = [COLUMN_NAMES.index(name) for name in layout.probe_metrics]
        self._http = client or httpx.Client()
        #: Prompt tokens that were sent, by replica.
        self.sent_tokens = dict.fromkeys(self._urls, 0)
        self._threads = ThreadPoolExecutor(max(1, len(self._urls)), thread_name_prefix="probe")
        self._flying: list[tuple[Due, str, Future[ProbeAnswer]]] = []
        #: What each replica's newest answer states of its build, where it does.
        self.stated: dict[str, str] = {}

    def __enter__(self) -> Prober:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for what is in flight, at most its limit."""
        self.close()

    def close(self, *, wait: bool = True) -> None:
        """Ask no more. wait: for what is in flight, at most its limit; else it is cut off."""
        self._threads.shutdown(wait=wait, cancel_futures=True)
        self._http.close()

    def step(self, now_s: float) -> ProbeSamples:
        """Send what is due at ``now_s``; what ended since the last call, a batch of one fleet."""
        landed = [(due, url, flight.result()) for due, url, flight in self._flying if flight.done()]
        self._flying = [one for one in self._flying if not one[2].done()]
        for due, _, _ in landed:
            self._schedule.done(due.replica)
        for due in self._schedule.due(now_s, self._urls):
            self.sent_tokens[due.replica] += due.prompt.tokens
            url = self._urls[due.replica]
            self._flying.append((due, url, self._threads.submit(self._ask, due, url)))
        ended = [(due, answer) for due, url, answer in landed if self._urls.get(due.replica) == url]
        self.stated |= {due.replica: answer.fingerprint for due, answer in ended if answer.fingerprint}
        return self._samples(ended)

    def aim(self, urls: Mapping[str, str]) -> None:
        """Ask at these addresses from now on, of replicas that were named at the beginning.

        A replica that is not among them is not asked, and an answer that comes from another address than its
        replica's is no sample of who stands there now.
        """
        moved = {name for name, url in urls.items() if self._urls.get(name) != url}
        self.stated = {name: one for name, one in self.stated.items() if name in urls and name not in moved}
        self._urls = dict(urls)

    def _ask(self, due: Due, url: str) -> ProbeAnswer:
        prompt, reference = self._plan.prompts[due.prompt.place], self._plan.references[due.prompt.place]
        return probe(self._http, url, self._model, prompt, reference, self._plan.limit_s)

    def _samples(self, ended: Sequence[tuple[Due, ProbeAnswer]]) -> ProbeSamples:
        names = {name: at for at, name in enumerate(self._layout.replicas)}
        rows = [self._row(answer) for _, answer in ended]
        answered = [answer.outcome == ProbeOutcome.ANSWERED for _, answer in ended]
        return ProbeSamples(
            replica=np.array([[names[due.replica] for due, _ in ended]], dtype=np.int64),
            slice=np.array([[due.prompt.slice for due, _ in ended]], dtype=np.int64),
            prompt=np.array([[self._plan.prompts[due.prompt.place].id for due, _ in ended]], dtype=np.int64),
            sampled_at_ms=np.array([[answer.sent_at_s * MS_PER_S for _, answer in ended]]),
            values=np.array(rows).reshape(1, len(rows), len(self._columns)),
            valid=np.array([answered], dtype=np.bool_),
            outcome=np.array([[int(answer.outcome) for _, answer in ended]], dtype=np.int8),
            latency_ms=np.array([[answer.latency_ms for _, answer in ended]]),
        )

    def _row(self, answer: ProbeAnswer) -> list[float]:
        """Values of the layout's probe metrics; NaN where nothing was measured."""
        if answer.values is None:
            return [math.nan] * len(self._columns)
        return [float(answer.values[column]) for column in self._columns]
