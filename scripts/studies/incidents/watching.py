"""One part on a live server: users, probes, the fault, its detection; and the server is clean afterwards."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from contracts.documents.scenario import ScheduledFault
from contracts.errors import SelvageError
from contracts.metrics import GENERATION_COLUMNS
from live.drill.one_server import NAME, DrillServer, drill_server, send_user_load
from live.measure.corpus import SLICES
from live.measure.endpoint import Endpoint
from live.measure.prompts import SHIPPED_PROMPTS, load_prompts
from live.probe.prober import ProbePlan, Prober
from live.run.generation import generation_plans
from live.run.options import ProbeOptions
from live.run.probing import probe_plan
from scripts.studies.alarms import AlarmWatch, SeenRun, live_probe_fleet
from scripts.studies.incidents.plan import WARM_S, IncidentPart, noise_range_text
from scripts.studies.incidents.results import IncidentResult

#: Tokens per second: more than the shipped budget, so that a run is short; tokens are what counts.
PREFILL_TOKENS_PER_S, GENERATION_TOKENS_PER_S = 128.0, 512.0
#: Additional time for prefill probes alone after the first alarm, within the limit.
MORE_S = 15.0
_TICK_S, _TTL_S, _PATIENCE_S = 0.2, 300.0, 10.0
#: Requests to a server at rest: the tokens must be the same as when it was new.
_REST_PROMPT, _REST_TOKENS = tuple(range(50, 130)), 24

Struck = Callable[[], bool]


@dataclass(slots=True)
class WatchedServer:
    """A server that one part after the other strikes; replaced if it does not come to rest."""

    folder: Path
    say: Callable[[str], None]
    on_ready: Callable[[], None] = lambda: None
    """Called when the first server runs, from where time can be estimated."""
    starts: int = 0

    @contextmanager
    def _server(self) -> Iterator[_Watching]:
        """A new server, with probes whose right answers are its own clean ones."""
        self.starts += 1
        place = self.folder / f"server-{self.starts}"
        place.mkdir(parents=True)
        with drill_server(place) as server:
            watching = _Watching(server=server, plan=_plan(server.url, place), rest=_answer(server.url))
            if self.starts == 1:
                self.on_ready()
            yield watching

    def run(
        self, parts: tuple[IncidentPart, ...], on_done: Callable[[IncidentPart, IncidentResult], None]
    ) -> None:
        """Run every part of ``parts``, in order."""
        left = list(parts)
        while left:
            with self._server() as watching:
                while left:
                    part = left.pop(0)
                    on_done(part, watching.result(part))
                    unrest = watching.unrest()
                    if unrest and left:
                        self.say(f"a new server after {part.place}: {unrest}")
                        break


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watching:
    """A clean server, the requests to it, and its answers at rest."""

    server: DrillServer
    plan: ProbePlan
    rest: str

    def result(self, part: IncidentPart) -> IncidentResult:
        """The observations of ``part``."""
        began_at_s = time.monotonic()
        seen = self._watched(part)
        return IncidentResult(
            name=part.name,
            seed=part.seed,
            limit_s=part.limit_s,
            noise=noise_range_text(),
            by=seen.by,
            after_s=None if seen.after_s is None else round(seen.after_s, 1),
            tokens=seen.tokens,
            prefill=seen.prefill,
            health=seen.unhealthy,
            struck=seen.struck,
            false_alarm=seen.false_alarm,
            spent_s=round(time.monotonic() - began_at_s, 1),
            load=round(os.getloadavg()[0], 1),
        )

    def unrest(self) -> str:
        """How the server differs from its new state; "" if it does not."""
        try:
            undone, status = self.server.faults.undo(), self.server.faults.status()
        except SelvageError as error:
            return str(error)
        if not undone.clean or status["engine"] is None:
            return "its canary is not that of the clean run"
        if status["http"] or status["engine"]["faults"]:
            return "a fault is still in force"
        with suppress(httpx.HTTPError):
            return (
                "" if _answer(self.server.url) == self.rest else "it answers otherwise than when it was new"
            )
        return "it answers nothing"

    def _watched(self, part: IncidentPart) -> SeenRun:
        """Observations within the part's limit, under load."""
        asked = [
            one for one in load_prompts(SHIPPED_PROMPTS) if one.split == "traffic" and one.slice in SLICES
        ]
        fleet = live_probe_fleet(SLICES, PREFILL_TOKENS_PER_S / 64.0)
        urls = {fleet.layout.replicas[0]: self.server.url}
        with (
            send_user_load(self.server.url, asked, part.seed),
            Prober(fleet.layout, self.plan, urls, NAME, time.time()) as prober,
        ):
            before = self._watch(prober, AlarmWatch(fleet), WARM_S, lambda: False)
            with self._injected(part.fault) as struck:
                seen = self._watch(prober, AlarmWatch(fleet), part.limit_s, struck)
            return replace(seen, false_alarm=before.by)

    def _watch(self, prober: Any, watch: AlarmWatch, limit_s: float, struck: Struck) -> SeenRun:
        began_at_s, spent = time.time(), sum(prober.sent_tokens.values())
        unhealthy = False
        while time.time() - began_at_s < _lasts_s(watch, limit_s):
            tokens = sum(prober.sent_tokens.values()) - spent
            watch.take(prober.step(time.time()), time.time() - began_at_s, tokens)
            unhealthy |= not self._is_healthy()
            time.sleep(_TICK_S)
        return watch.seen(unhealthy, sum(prober.sent_tokens.values()) - spent, struck())

    def _is_healthy(self) -> bool:
        try:
            return httpx.get(f"{self.server.url}/health", timeout=_PATIENCE_S).status_code == httpx.codes.OK
        except httpx.TimeoutException:  # a busy machine's timeout proves nothing
            return True
        except httpx.HTTPError:
            return False

    @contextmanager
    def _injected(self, fault: ScheduledFault | None) -> Iterator[Struck]:
        """With ``fault`` in force; yields the proof of whether it struck."""
        if fault is None:
            yield lambda: False
            return
        injected = self.server.faults.inject(fault, _TTL_S)
        try:
            yield lambda: self.server.faults.verify(injected).happened
        finally:
            self.server.faults.undo()


def _lasts_s(watch: AlarmWatch, limit_s: float) -> float:
    """Time to observe: prefill probes alone get ``MORE_S`` after the first alarm of others."""
    if watch.first_prefill is not None:
        return 0.0
    return limit_s if watch.first is None else min(watch.first[1] + MORE_S, limit_s)


def _plan(url: str, folder: Path) -> ProbePlan:
    """All kinds of probes with the clean server's own answers as the right ones."""
    options = ProbeOptions(
        tokens_per_s=PREFILL_TOKENS_PER_S,
        generation_tokens_per_s=GENERATION_TOKENS_PER_S,
        limit_s=_PATIENCE_S,
    )
    endpoint = Endpoint(url=url, model=NAME)
    plan = probe_plan(options, SLICES, endpoint, folder / "reference", NAME)
    made = generation_plans(options, GENERATION_COLUMNS, plan.prompts, endpoint, folder / "reference", NAME)
    return replace(plan, generation=made)


def _answer(url: str) -> str:
    """Greedy answer of a server at rest to one request."""
    body = {"model": NAME, "prompt": list(_REST_PROMPT), "max_tokens": _REST_TOKENS, "temperature": 0.0}
    body["ignore_eos"] = True
    answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60.0)
    answer.raise_for_status()
    return str(answer.json()["choices"][0]["text"])
