"""The prober of a live fleet: sends the probes that are due, and returns results as a telemetry record.

Prefill probes and every kind of generation probe have their own schedule within their share of tokens. A
replica has at most one short and one long probe in flight, whatever their kinds.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import httpx
import numpy as np

from contracts.compiled.contract import FleetLayout
from contracts.metrics import COLUMN_NAMES
from contracts.telemetry import ProbeOutcome, ProbeSamples
from contracts.units import MS_PER_S
from live.measure.backend import TopScores
from live.measure.prompts import Prompt
from live.ports import Unanswered
from live.probe.answers import Line
from live.probe.generation import GAVE_WAY, GenerationPlan, generate
from live.probe.kinds import Asking, Echo
from live.probe.prefill import ProbeAnswer, probe
from live.probe.schedule import Due, Lane, ProbeBudget, ProbePrompt, ProbeSchedule
from live.probe.statuses import unfit

#: Outcomes that are no evidence about the replica.
_UNINFORMATIVE = ProbeOutcome.NONE, ProbeOutcome.UNREADABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """What is probed. references: the reference's answers, one for each of ``prompts``.

    generation: plans of generation probes (empty: none).
    """

    prompts: Sequence[Prompt]
    references: Sequence[TopScores]
    budget: ProbeBudget
    limit_s: float = 2.0
    seed: int = 0
    generation: Sequence[GenerationPlan] = ()

    def __post_init__(self) -> None:
        if len(self.prompts) != len(self.references):
            raise ValueError(
                f"expected a reference for each of {len(self.prompts)} prompts, got {len(self.references)}"
            )

    @property
    def tokens_per_s(self) -> float:
        """Average cost of all probes of a replica together, tokens per s."""
        prefill = self.budget.tokens_per_s if self.prompts else 0.0
        return prefill + sum(one.budget.tokens_per_s for one in self.generation)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queue:
    """One kind of probe with its schedule. plan None: prefill probes."""

    schedule: ProbeSchedule
    lane: Lane
    plan: GenerationPlan | None = None

    @property
    def kind(self) -> str:
        """Name of the kind."""
        return "prefill" if self.plan is None else self.plan.kind.name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flight:
    """One probe in flight."""

    queue: _Queue
    due: Due
    url: str  # of the probed replica
    answer: Future[ProbeAnswer]


class Prober:
    """Probes replicas by URL; use as a context. Nothing here raises for an error of a server."""

    def __init__(
        self,
        layout: FleetLayout,
        plan: ProbePlan,
        urls: Mapping[str, str],
        model: str,
        began_at_s: float,
        client: httpx.Client | None = None,
    ) -> None:
        """``urls``: replica -> base URL, for replicas of ``layout``. client: with keys and certificates."""
        self._layout, self._plan, self._urls, self._model = layout, plan, dict(urls), model
        self._queues = deque(self._made(began_at_s))
        self._http = client or httpx.Client()
        #: Tokens of prompts and answers that were requested so far, by replica.
        self.sent_tokens = dict.fromkeys(self._urls, 0)
        #: Replicas with waiting requests: no long probe is begun there, and a running one is aborted.
        self.pressed: frozenset[str] = frozenset()
        #: Replica -> part of the budget at which it is probed, if not the whole.
        self.paces: dict[str, float] = {}
        self._echoes = {name: Echo() for name in self._urls}
        workers = len({queue.lane for queue in self._queues}) * len(self._urls)
        self._threads = ThreadPoolExecutor(max(1, workers), thread_name_prefix="probe")
        self._closing = False
        self._now_s = began_at_s
        self._left_alone_until_s: dict[str, float] = {}
        #: (replica, kind) pairs that were ever answered; and why the last probes gave no information.
        self._answered: set[tuple[str, str]] = set()
        self._uninformative: dict[tuple[str, str], Unanswered] = {}
        self._flying: list[_Flight] = []
        #: Fingerprint in each replica's newest answer, if it states one.
        self.stated: dict[str, str] = {}

    def __enter__(self) -> Prober:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for probes in flight, at most for their limit; long probes are aborted."""
        self.close()

    def close(self, *, wait: bool = True) -> None:
        """Stop probing. wait: wait for probes in flight, as at the end of a context; else cut them off."""
        self._closing = True
        self._threads.shutdown(wait=wait, cancel_futures=True)
        self._http.close()

    def receive(self, waiting: Mapping[str, float]) -> None:
        """Note how many requests wait at each replica that was scraped: long probes yield to them."""
        waits = {name for name, requests in waiting.items() if requests > 0.0}
        self.pressed = (self.pressed - waiting.keys()) | waits

    def step(self, now_s: float) -> ProbeSamples:
        """Send what is due at ``now_s``; return what ended since the last call, as a batch of one fleet."""
        landed, self._now_s = self._land(), now_s
        for flight in landed:
            flight.queue.schedule.done(flight.due.replica)
        mine = [one for one in landed if self._urls.get(one.due.replica) == one.url]
        found = [(flight, self._judged(flight)) for flight in mine]
        self._queues.rotate(1)  # so that each queue gets its turn to be first at free lanes
        for queue in self._queues:
            for due in queue.schedule.due(now_s, partial(self._has_room, queue.lane), self._pace):
                self.sent_tokens[due.replica] += due.prompt.tokens
                url = self._urls[due.replica]
                answer = self._threads.submit(self._ask, queue, due, url)
                self._flying.append(_Flight(queue=queue, due=due, url=url, answer=answer))
        return self._samples(found)

    def aim(self, urls: Mapping[str, str]) -> None:
        """From now on probe replicas at the addresses ``urls`` (replica -> URL).

        A replica without an address is not probed. An answer from a former address is not counted for the
        replica.
        """
        moved = {name for name, url in urls.items() if self._urls.get(name) != url}
        self._echoes |= {name: Echo() for name in moved}
        stay = urls.keys() - moved
        self._answered = {place for place in self._answered if place[0] in stay}
        self._uninformative = {place: one for place, one in self._uninformative.items() if place[0] in stay}
        self.stated = {name: one for name, one in self.stated.items() if name in urls and name not in moved}
        self._urls = dict(urls)

    def _land(self) -> list[_Flight]:
        """Remove and return the ended probes. ``done`` is read once per probe, so that none is lost."""
        asked = [(flight, flight.answer.done()) for flight in self._flying]
        self._flying = [flight for flight, done in asked if not done]
        return [flight for flight, done in asked if done]

    def _made(self, began_at_s: float) -> list[_Queue]:
        """A queue per kind, with the prompts of slices in the layout."""
        found = (
            [_Queue(schedule=self._schedule(began_at_s, None), lane=Lane.SHORT)] if self._plan.prompts else []
        )
        made = [
            _Queue(schedule=self._schedule(began_at_s, plan), lane=plan.kind.lane, plan=plan)
            for plan in self._plan.generation
        ]
        return [*found, *made]

    def _schedule(self, began_at_s: float, plan: GenerationPlan | None) -> ProbeSchedule:
        known = {name: at for at, name in enumerate(self._layout.slices)}
        if plan is None:
            costs = [(one.slice, len(one.token_ids)) for one in self._plan.prompts]
        else:
            costs = [(one.slice, plan.kind.cost_tokens(one)) for one in plan.prompts]
        prompts = [
            ProbePrompt(known[name], place, tokens)
            for place, (name, tokens) in enumerate(costs)
            if name in known
        ]
        budget = self._plan.budget if plan is None else plan.budget
        lane = "" if plan is None else plan.kind.name
        return ProbeSchedule(
            list(self._urls), prompts, budget, seed=self._plan.seed, began_at_s=began_at_s, kind=lane
        )

    def _pace(self, replica: str) -> float:
        return self.paces.get(replica, 1.0)

    def _has_room(self, lane: Lane, replica: str) -> bool:
        if replica not in self._urls or (lane is Lane.LONG and replica in self.pressed):
            return False
        if self._now_s < self._left_alone_until_s.get(replica, -math.inf):
            return False
        return all((one.due.replica, one.queue.lane) != (replica, lane) for one in self._flying)

    def _ask(self, queue: _Queue, due: Due, url: str) -> ProbeAnswer:
        place = due.prompt.place
        if queue.plan is None:
            prompt, reference = self._plan.prompts[place], self._plan.references[place]
            return probe(self._http, url, self._model, prompt, reference, self._plan.limit_s)
        long = queue.lane is Lane.LONG
        asking = Asking(
            line=Line(self._http, url, self._model, queue.plan.prompts[place].slice),
            limit_s=queue.plan.limit_s,
            golden=queue.plan.golden,
            echo=self._echoes[due.replica],
            gives_way=lambda: long and (self._closing or due.replica in self.pressed),
        )
        return generate(queue.plan, queue.plan.prompts[place], asking)

    def _judged(self, flight: _Flight) -> ProbeAnswer:
        """The answer; the server's fingerprint state and requested pause are noted."""
        place, found = (flight.due.replica, flight.queue.kind), flight.answer.result()
        if found.retry_after_s > 0.0:
            self._left_alone_until_s[flight.due.replica] = self._now_s + found.retry_after_s
        if found.outcome == ProbeOutcome.FAILED and unfit(found.status) and place not in self._answered:
            found = replace(found, outcome=ProbeOutcome.UNREADABLE)
        if found.outcome == ProbeOutcome.ANSWERED:
            self._answered.add(place)
        before = self._uninformative.pop(place, None)
        if found.outcome in _UNINFORMATIVE and found.told != GAVE_WAY:
            times = 1 if before is None else before.times + 1
            self._uninformative[place] = Unanswered(why=f"{place[1]}: {found.told}", times=times)
        return found

    @property
    def uninformative(self) -> dict[str, Unanswered]:
        """Replica -> why its last probes of a kind gave no information: it answered something else than what
        was asked for, or was busy.
        """
        return {place[0]: one for place, one in sorted(self._uninformative.items(), key=lambda p: p[1].times)}

    def _samples(self, results: Sequence[tuple[_Flight, ProbeAnswer]]) -> ProbeSamples:
        names = {name: at for at, name in enumerate(self._layout.replicas)}
        self.stated |= {one.due.replica: answer.fingerprint for one, answer in results if answer.fingerprint}
        rows = [self._row(answer) for _, answer in results]
        answered = [answer.outcome == ProbeOutcome.ANSWERED for _, answer in results]
        ended = [flight for flight, _ in results]
        prompts = [self._number(flight) for flight in ended]
        return ProbeSamples(
            replica=np.array([[names[flight.due.replica] for flight in ended]], dtype=np.int64),
            slice=np.array([[flight.due.prompt.slice for flight in ended]], dtype=np.int64),
            prompt=np.array([prompts], dtype=np.int64),
            sampled_at_ms=np.array([[answer.sent_at_s * MS_PER_S for _, answer in results]]),
            values=np.array(rows).reshape(1, len(rows), len(self._layout.probe_metrics)),
            valid=np.array([answered], dtype=np.bool_),
            outcome=np.array([[int(answer.outcome) for _, answer in results]], dtype=np.int8),
            latency_ms=np.array([[answer.latency_ms for _, answer in results]]),
        )

    def _number(self, flight: _Flight) -> int:
        plan, place = flight.queue.plan, flight.due.prompt.place
        return self._plan.prompts[place].id if plan is None else plan.prompts[place].number

    def _row(self, answer: ProbeAnswer) -> list[float]:
        """Values of the layout's probe metrics; NaN for those not measured."""
        named = dict(answer.named)
        if answer.values is not None:
            named |= dict(zip(COLUMN_NAMES, answer.values.tolist(), strict=True))
        return [float(named.get(name, math.nan)) for name in self._layout.probe_metrics]
