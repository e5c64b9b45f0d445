"""Alarms of single clauses from probes of one live replica, by the contract's detectors and budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from contracts.compiled.build import compile_contract
from contracts.compiled.contract import CompiledContract, FleetLayout
from contracts.documents import KernelContract
from contracts.loading.loader import load_as
from contracts.loading.shipped import SERVING_GENERATION
from contracts.loading.uris import resolve_uri
from contracts.metrics import GENERATION_COLUMNS
from contracts.telemetry import ProbeOutcome, ProbeSamples, SampleRates, Source
from controller.detect.budget import split_budget
from controller.detect.clauses import Kind, plan_clauses
from controller.detect.streams.protocol import StreamState, guaranteed_threshold

#: Probes in a row without a whole answer.
SILENT = 3
_NO_ANSWER = (int(ProbeOutcome.REFUSED), int(ProbeOutcome.FAILED), int(ProbeOutcome.TIMED_OUT))
_PREFILL = ("kl_mean@top_k", "tv_mean@top_k", "top1_flip@top_k")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFleet:
    """One replica of one kernel under the shipped contract for generations."""

    layout: FleetLayout
    contract: CompiledContract
    rates: SampleRates


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRun:
    """Observations of one run. by: the first clause in alarm, or "no answer" ("": nothing)."""

    by: str
    after_s: float | None
    tokens: int
    prefill: bool
    unhealthy: bool
    struck: bool
    false_alarm: str = ""


def live_probe_fleet(slices: Sequence[str], probes_per_s: float) -> ProbeFleet:
    """The fleet with probe columns of every live kind."""
    layout = FleetLayout(
        kernels=("served",),
        slices=tuple(slices),
        replicas=("served-0",),
        replica_kernel=np.zeros(1, dtype=np.int64),
        probe_metrics=(*_PREFILL, *GENERATION_COLUMNS),
        known_good=0,
    )
    document = load_as(KernelContract, resolve_uri(SERVING_GENERATION, "selvage bench incidents"))
    rates = SampleRates(probes_per_s=probes_per_s, scrape_interval_s=1.0)
    return ProbeFleet(layout=layout, contract=compile_contract(document, layout), rates=rates)


class AlarmWatch:
    """Every probe clause as one stream over all its slices, with half of its share of the budget, as for a
    replica's streams.
    """

    def __init__(self, fleet: ProbeFleet) -> None:
        contract = fleet.contract
        self._fleet, self._plan = fleet, plan_clauses(contract)
        arl0 = split_budget(contract, fleet.layout, fleet.rates).replica_arl0[0]  # [S, C]
        finite = np.where(np.isfinite(arl0), 2.0 * arl0, 0.0).max(axis=0)
        self._threshold = [guaranteed_threshold(value) if value > 1.0 else np.inf for value in finite]
        betting = self._plan.kind == int(Kind.BETTING)
        self._clauses = [
            c for c in np.flatnonzero(contract.source == int(Source.PROBE)) if self._plan.kind[c] != Kind.NONE
        ]
        self._detectors = {int(c): self._plan.detector(int(c)) for c in self._clauses if betting[c]}
        self._states: dict[int, StreamState] = {c: one.initial(1) for c, one in self._detectors.items()}
        self._silent = 0
        #: The first alarm: its source, its seconds and tokens; None while there is none.
        self.first: tuple[str, float, int] | None = None
        #: The same for prefill probes alone.
        self.first_prefill: tuple[str, float, int] | None = None
        #: Values by column, in order.
        self.values: dict[str, list[float]] = {}

    def take(self, probes: ProbeSamples, at_s: float, tokens: int) -> None:
        """Judge finished probes, ``at_s`` after the beginning, after this many requested tokens."""
        for place in range(probes.replica.shape[1]):
            if int(probes.outcome[0, place]) == int(ProbeOutcome.NONE):
                continue
            missing = int(probes.outcome[0, place]) in _NO_ANSWER
            self._silent = self._silent + 1 if missing else 0
            if self._silent >= SILENT:
                self._alarm("no answer", at_s, tokens, prefill=True)
            if probes.valid[0, place]:
                self._judge(probes.values[0, place], int(probes.slice[0, place]), at_s, tokens)

    def seen(self, unhealthy: bool, tokens: int, struck: bool) -> SeenRun:
        """The run's end."""
        by, after_s, spent = self.first or ("", None, tokens)
        return SeenRun(
            by=by,
            after_s=after_s,
            tokens=spent,
            prefill=self.first_prefill is not None,
            unhealthy=unhealthy,
            struck=struck,
        )

    def _judge(self, values: np.ndarray, at_slice: int, at_s: float, tokens: int) -> None:
        contract = self._fleet.contract
        for c in self._clauses:
            column = int(contract.column[c])
            value = float(values[column])
            if np.isnan(value) or not contract.applies[c, at_slice]:
                continue
            name = self._fleet.layout.probe_metrics[column]
            self.values.setdefault(name, []).append(value)
            if self._in_alarm(int(c), value):
                self._alarm(contract.clause_ids[c], at_s, tokens, prefill=name in _PREFILL)

    def _in_alarm(self, c: int, value: float) -> bool:
        contract, plan = self._fleet.contract, self._plan
        over = contract.sense[c] * (value - contract.threshold[c]) > 0.0
        if c not in self._detectors:
            return bool(over)
        y = float(over) if contract.is_rate[c] else min(value, float(plan.clip[c]))
        state = self._states[c]
        self._detectors[c].advance(state, np.array([y]), np.array([True]))
        return bool(state.statistic[0] >= self._threshold[c])

    def _alarm(self, by: str, at_s: float, tokens: int, *, prefill: bool) -> None:
        self.first = self.first or (by, at_s, tokens)
        if prefill:
            self.first_prefill = self.first_prefill or (by, at_s, tokens)
