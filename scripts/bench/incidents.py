"""Incidents of the field, replayed on a live server: ``selvage bench incidents``.

Each class of public reports is struck in kind on one vLLM server of the shipped model, once per seed, under
users' load, with trigger parameters that ``faults.drill.incidents`` draws. What looks at it: a health check,
the prefill probe, every kind of generation probe. A fault is *caught* when a clause of the contract
``serving-generation`` is in alarm by the detectors and thresholds that the false-switch budget gives it, or
when ``SILENT`` probes in a row got no whole answer; else it is *missed*. Controls run without a fault.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from rich.table import Table

if TYPE_CHECKING:
    from contracts.documents.scenario import ScheduledFault
    from live.drill.one_server import DrillServer
    from live.probe.prober import ProbePlan
    from scripts.studies.alarms import AlarmWatch, Seen

SEEDS = tuple(range(int(os.environ.get("SELVAGE_INCIDENT_SEEDS", "2"))))
LIMIT_S = float(os.environ.get("SELVAGE_INCIDENT_LIMIT_S", "45"))
CONTROL_S = 60.0
#: Tokens per second: more than the shipped budget, so that a run is short; tokens are what counts.
PREFILL_TOKENS_PER_S, GENERATION_TOKENS_PER_S = 128.0, 512.0
SLICES = ("code", "prose", "json", "numbers")
#: The prober runs so long before a fault, as it does where one comes; its alarms then are false ones.
WARM_S = 10.0
#: Prefill probes alone are given so long after the first alarm, within the limit.
MORE_S = 15.0
_TICK_S, _TTL_S, _PATIENCE_S = 0.2, 300.0, 10.0


def run() -> dict[str, object]:
    """Flat figures of every incident and seed, misses among them; times are wall time from the injection."""
    from faults.drill.incidents import INCIDENTS, Place, drawn_fault
    from live.drill.one_server import BLOCK_TOKENS, CONTEXT_TOKENS, drill_server

    place = Place(block_tokens=BLOCK_TOKENS, context_tokens=CONTEXT_TOKENS, slices=SLICES)
    figures: dict[str, object] = {"seeds": len(SEEDS), "limit_s": LIMIT_S}
    with (
        tempfile.TemporaryDirectory(prefix="selvage-incidents-") as folder,
        drill_server(Path(folder)) as server,
    ):
        bench = _Bench(server=server, plan=_plan(server.url, Path(folder)))
        for seed in SEEDS:
            figures |= _flat(f"control.{seed}", bench.watched(seed, CONTROL_S, None))
            for incident in INCIDENTS:
                fault = drawn_fault(incident, place, seed)
                figures |= _flat(f"{incident.name}.{seed}", bench.watched(seed, LIMIT_S, fault))
    caught = [name for name, value in figures.items() if name.endswith(".caught") and "control" not in name]
    figures["caught"] = sum(bool(figures[name]) for name in caught)
    figures["replayed"] = len(caught)
    return figures


def table(figures: dict[str, Any]) -> Table:
    """A row per incident and seed."""
    columns = ("incident", "seed", "caught", "by", "after s", "probe tokens", "prefill alone", "health check")
    shown = Table(*columns)
    for name in [key.removesuffix(".caught") for key in figures if key.endswith(".caught")]:
        incident, _, seed = name.rpartition(".")
        told = {key: figures[f"{name}.{key}"] for key in ("caught", "by", "s", "tokens", "prefill", "health")}
        caught = "yes" if told["caught"] else "no"
        after = "" if told["s"] is None else f"{told['s']:.0f}"
        shown.add_row(
            incident,
            seed,
            caught,
            str(told["by"]),
            after,
            str(told["tokens"]),
            str(told["prefill"]),
            str(told["health"]),
        )
    return shown


def _flat(name: str, seen: Seen) -> dict[str, object]:
    return {
        f"{name}.caught": seen.by != "",
        f"{name}.by": seen.by,
        f"{name}.s": seen.after_s,
        f"{name}.tokens": seen.tokens,
        f"{name}.prefill": "caught" if seen.prefill else "missed",
        f"{name}.health": "caught" if seen.unhealthy else "missed",
        f"{name}.struck": seen.struck,
        f"{name}.false_alarm_before": seen.false_alarm,
    }


def _plan(url: str, folder: Path) -> ProbePlan:
    """All kinds of probes with the clean server's own answers as the right ones."""
    from contracts.metrics import GENERATION_COLUMNS
    from live.drill.one_server import NAME
    from live.measure.endpoint import Endpoint
    from live.run.generating import generation_plans
    from live.run.options import ProbeOptions
    from live.run.probing import probe_plan

    options = ProbeOptions(
        tokens_per_s=PREFILL_TOKENS_PER_S,
        generation_tokens_per_s=GENERATION_TOKENS_PER_S,
        limit_s=_PATIENCE_S,
    )
    endpoint = Endpoint(url=url, model=NAME)
    plan = probe_plan(options, SLICES, endpoint, folder / "reference", NAME)
    made = generation_plans(options, GENERATION_COLUMNS, plan.prompts, endpoint, folder / "reference", NAME)
    return replace(plan, generation=made)


def _end_at_s(watch: AlarmWatch, limit_s: float) -> float:
    """When to stop looking: prefill probes alone get ``MORE_S`` after the first alarm of others."""
    if watch.first_prefill is not None:
        return 0.0
    return limit_s if watch.first is None else min(watch.first[1] + MORE_S, limit_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """A clean server and what is asked of it."""

    server: DrillServer
    plan: ProbePlan

    def watched(self, seed: int, limit_s: float, fault: ScheduledFault | None) -> Seen:
        """What is seen within ``limit_s`` of ``fault`` (None: of nothing), under load."""
        from live.drill.one_server import NAME, users
        from live.measure.prompts import SHIPPED_PROMPTS, load_prompts
        from live.probe.prober import Prober
        from scripts.studies.alarms import AlarmWatch, live_probe_fleet

        asked = [
            one for one in load_prompts(SHIPPED_PROMPTS) if one.split == "traffic" and one.slice in SLICES
        ]
        fleet = live_probe_fleet(SLICES, PREFILL_TOKENS_PER_S / 64.0)
        urls = {fleet.layout.replicas[0]: self.server.url}
        with (
            users(self.server.url, asked, seed),
            Prober(fleet.layout, self.plan, urls, NAME, time.time()) as prober,
        ):
            before = self._watch(prober, AlarmWatch(fleet), WARM_S, lambda: False)
            with self._injected(fault) as struck:
                seen = self._watch(prober, AlarmWatch(fleet), limit_s, struck)
            return replace(seen, false_alarm=before.by)

    def _watch(self, prober: Any, watch: AlarmWatch, limit_s: float, struck: Any) -> Seen:
        began_at_s, spent = time.time(), sum(prober.sent_tokens.values())
        unhealthy = False
        while time.time() - began_at_s < _end_at_s(watch, limit_s):
            tokens = sum(prober.sent_tokens.values()) - spent
            watch.take(prober.step(time.time()), time.time() - began_at_s, tokens)
            unhealthy |= not self._is_healthy()
            time.sleep(_TICK_S)
        return watch.seen(unhealthy, sum(prober.sent_tokens.values()) - spent, struck())

    def _is_healthy(self) -> bool:
        try:
            return httpx.get(f"{self.server.url}/health", timeout=_PATIENCE_S).status_code == httpx.codes.OK
        except httpx.TimeoutException:  # a busy machine is no answer either way
            return True
        except httpx.HTTPError:
            return False

    @contextmanager
    def _injected(self, fault: ScheduledFault | None) -> Iterator[Any]:
        """With ``fault`` in force; what tells whether it struck. The server is clean afterwards."""
        if fault is None:
            yield lambda: False
            return
        injected = self.server.faults.inject(fault, _TTL_S)
        try:
            yield lambda: self.server.faults.verify(injected).happened
        finally:
            undone = self.server.faults.undo()
            if not undone.clean:
                raise RuntimeError(f"{fault.name}: the server is not clean after the undo")
