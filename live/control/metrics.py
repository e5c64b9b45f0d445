"""The controller's own Prometheus metrics: health, moves, telemetry and cost, with bounded labels.

Unknown values are NaN, never 0: the health of a kernel on a slice is unknown until a probe has reached it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from contracts.telemetry import ProbeOutcome
from contracts.units import MS_PER_S
from controller.decision import Decision
from controller.detect.clauses import moves_traffic
from controller.options import ControllerSetup
from controller.perceive.usual_speed import usual_ratios
from live.control.loop import Turn
from live.errors import LiveError
from live.origins import LOOPBACK

SIGNAL_LABELS = ("replica", "signal")
_CELL = ("kernel", "slice")
_TICKS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class ControllerMetrics:
    """``TurnWatcher`` with a metrics registry of its own. sent_tokens: probe tokens so far, by replica.

    passive: (replica, signal) -> whether it is worse than its own past; None if unknown.
    scrapes: the (replica, what) oddities of scrapes at present.
    """

    def __init__(
        self,
        setup: ControllerSetup,
        *,
        observes: bool,
        sent_tokens: Callable[[], Mapping[str, int]],
        passive: Callable[[], Mapping[tuple[str, str], bool | None]] = dict,
        scrapes: Callable[[], Collection[tuple[str, str]]] = tuple,
    ) -> None:
        self._setup, self._sent_tokens, self._passive = setup, sent_tokens, passive
        self._scrapes, self._odd_places = scrapes, set[tuple[str, str]]()
        self._told_tokens: dict[str, int] = {}
        self.registry = CollectorRegistry()
        cell, row = _CELL, ("slice",)
        self._health = self._gauge("selvage_health_ratio", "Excess over broken clauses; 0: kept", cell)
        self._level = self._gauge("selvage_level_number", "0 normal, 1 guard, 2 fallback", cell)
        self._evidence = self._gauge("selvage_evidence_age_seconds", "Age of the newest probe answer", cell)
        self._weight = self._gauge("selvage_weight_ratio", "Share of a slice that was decided", cell)
        self._shed = self._gauge("selvage_shed_ratio", "Share of a slice that is to be shed", row)
        self._quarantined = self._gauge("selvage_quarantined_bool", "Out of rotation", ("replica",))
        usual = "Steps as long as usual, in times of the certified ones"
        self._usual = self._gauge("selvage_usual_step_time_ratio", usual, ("replica",))
        self._age = self._gauge("selvage_telemetry_age_seconds", "Since any scrape or probe arrived")
        self._held = self._gauge("selvage_held_bool", "Telemetry is silent, the last table stands")
        self._demoted = self._gauge("selvage_demoted_bool", "The baseline drives in place of the policy")
        labels = ("slice", "executed")
        self._moves = self._counter("selvage_moves_total", "Rows that were moved, or would have been", labels)
        self._turns = self._counter("selvage_ticks_total", "Turns of the controller", ("outcome",))
        self._errors = self._counter("selvage_errors_total", "What ports said", ("port",))
        self._resets = self._counter("selvage_resets_total", "Replicas cut loose", ("replica",))
        self._probes = self._counter("selvage_probes_total", "Ended probes", ("replica", "outcome"))
        self._tokens = self._counter("selvage_probe_tokens_total", "Tokens asked for", ("replica",))
        self._alarm_gauges()
        self._tick = self._times("selvage_tick_seconds", "A whole turn")
        self._cpu = self._times("selvage_decision_cpu_seconds", "CPU time of one decision")
        mode, names = "observe" if observes else "enforce", ("policy", "contract", "mode")
        info = self._gauge("selvage_controller_info", "What decides, always 1", names)
        info.labels(setup.policy.policy_id, setup.contract.name, mode).set(1.0)
        self._nothing_known()

    def _alarm_gauges(self) -> None:
        """Gauges for alarms, including those that move nothing."""
        kernels, slices, _ = self._setup.layout.shape
        shape = kernels, slices, len(self._setup.contract.clause_ids)
        #: float64 [K, S, C], clause alarms as last exported; inf: never exported.
        self._clauses: NDArray[np.float64] = np.full(shape, np.inf)
        clause, odd = (*_CELL, "clause", "moves_traffic"), "Scrapes or probes tell less than they might"
        self._clause = self._gauge("selvage_clause_alarm_bool", "In alarm, whether or not it moves", clause)
        self._worse = self._gauge("selvage_passive_alarm_bool", "Worse than its own past", SIGNAL_LABELS)
        self._odd = self._gauge("selvage_scrape_note_bool", odd, ("replica", "what"))

    def serve(self, port: int, address: str = LOOPBACK) -> tuple[str, Callable[[], None]]:
        """Serve the metrics at ``address``; the URL, and a function that stops the server. port 0: any free
        one.

        Raises LiveError if the port is taken.
        """
        try:
            server, thread = start_http_server(port, addr=address, registry=self.registry)
        except OSError as error:
            reason = error.strerror or str(error)
            raise LiveError(f"metrics at {address}:{port}: {reason}; choose another --metrics-port") from None

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return f"http://{address}:{server.server_port}/metrics", stop

    def turn(self, turn: Turn) -> None:
        """Update the metrics from ``turn``."""
        self._turns.labels("decided" if turn.decision is not None else "skipped").inc()
        self._tick.observe(turn.took_ms / MS_PER_S)
        if turn.error:
            self._errors.labels(turn.error.partition(":")[0].split()[0]).inc()
        for replica in turn.reset:
            self._resets.labels(replica).inc()
        self._note_tokens()
        for place, alarm in self._passive().items():
            self._worse.labels(*place).set(np.nan if alarm is None else float(alarm))
        odd = set(self._scrapes())
        self._odd_places |= odd
        for place in self._odd_places:
            self._odd.labels(*place).set(float(place in odd))
        newest = float(turn.after.received_at_s[0])
        self._age.set(max(turn.at_s - newest, 0.0) if np.isfinite(newest) else np.nan)
        if turn.decision is not None:
            self._cpu.observe(turn.spent_ms / MS_PER_S)
            self._note_decision(turn, turn.decision)

    def _note_decision(self, turn: Turn, decision: Decision) -> None:
        layout = self._setup.layout
        seen, judgement = decision.observation, decision.judgement
        for k, kernel in enumerate(layout.kernels):
            for s, name in enumerate(layout.slices):
                age_s = float(seen.evidence_age_s[0, k, s])
                known = np.isfinite(age_s)
                self._evidence.labels(kernel, name).set(age_s if known else np.nan)
                self._health.labels(kernel, name).set(judgement.health[0, k, s] if known else np.nan)
                self._level.labels(kernel, name).set(judgement.level[0, k, s] if known else np.nan)
                self._weight.labels(kernel, name).set(decision.table[0, s, k])
        moved = (np.abs(decision.table[0] - turn.before.table[0]) > 1e-9).any(axis=1)
        for s, name in enumerate(layout.slices):
            self._shed.labels(name).set(decision.table[0, s, -1])
            if moved[s]:
                self._moves.labels(name, str(turn.executed).lower()).inc()
        usual = usual_ratios(turn.after)[0]
        for r, replica in enumerate(layout.replicas):
            self._quarantined.labels(replica).set(float(decision.quarantined[0, r]))
            self._usual.labels(replica).set(usual[r])
        self._held.set(float(decision.held[0]))
        self._demoted.set(float(decision.demoted[0]))
        self._note_clauses(decision)
        self._note_probes(turn)

    def _note_clauses(self, decision: Decision) -> None:
        """Export changed clause alarms; unknown on kernels and slices that no probe has reached."""
        contract, layout = self._setup.contract, self._setup.layout
        known = np.isfinite(decision.observation.evidence_age_s[0])[:, :, None]
        told = np.where(known | decision.judgement.alarm[0], decision.judgement.alarm[0], np.nan)
        applies = contract.applies.T[None]
        changed = applies & ~np.equal(told, self._clauses) & ~(np.isnan(told) & np.isnan(self._clauses))
        moving = moves_traffic(contract)
        for k, s, c in np.argwhere(changed):
            names = layout.kernels[k], layout.slices[s], contract.clause_ids[c], str(bool(moving[c])).lower()
            self._clause.labels(*names).set(told[k, s, c])
        self._clauses = told

    def _note_probes(self, turn: Turn) -> None:
        if turn.telemetry is None:
            return
        probes, names = turn.telemetry.probes, self._setup.layout.replicas
        for replica, outcome in zip(probes.replica[0].tolist(), probes.outcome[0].tolist(), strict=True):
            self._probes.labels(names[replica], ProbeOutcome(outcome).name.lower()).inc()

    def _note_tokens(self) -> None:
        for replica, total in self._sent_tokens().items():
            self._tokens.labels(replica).inc(total - self._told_tokens.get(replica, 0))
            self._told_tokens[replica] = total

    def _nothing_known(self) -> None:
        """Set every gauge of a kernel and slice to NaN before the first turn."""
        for kernel in self._setup.layout.kernels:
            for name in self._setup.layout.slices:
                for gauge in (self._health, self._level, self._evidence):
                    gauge.labels(kernel, name).set(np.nan)
        self._age.set(np.nan)

    def _gauge(self, name: str, told: str, labels: tuple[str, ...] = ()) -> Any:
        return Gauge(name, told, labels, registry=self.registry)

    def _times(self, name: str, told: str) -> Any:
        return Histogram(name, told, buckets=_TICKS_S, registry=self.registry)

    def _counter(self, name: str, told: str, labels: tuple[str, ...]) -> Any:
        return Counter(name, told, labels, registry=self.registry)
