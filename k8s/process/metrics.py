"""Metrics of the operator itself, read from its state when somebody scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from contracts.units import MS_PER_S
from k8s.operator.namespace import NamespaceOperator
from k8s.operator.route_loop import RouteLoop
from k8s.process.decision_metrics import evidence_metrics, tally_metrics, tick_histogram
from k8s.process.promotion_metrics import promotion_metrics


@dataclass(slots=True)
class LoopCounts:
    """What the loop counts beside the operator's own state."""

    turns: int = 0
    failed_turns: int = 0
    turn_s: float = 0.0
    tick_seconds: Histogram = field(default_factory=tick_histogram)

    def turned(self, spent_s: float, *, failed: bool) -> None:
        """Count a turn."""
        self.turns += 1
        self.failed_turns += failed
        self.turn_s = spent_s
        self.tick_seconds.observe(spent_s)


class OperatorCollector:
    """Labels are bounded: policies, slices and kernels of the namespace, and reasons of this build."""

    def __init__(self, operator: NamespaceOperator, counts: LoopCounts, leads: Callable[[], bool]) -> None:
        self._operator, self._counts, self._leads = operator, counts, leads

    def register(self) -> CollectorRegistry:
        """A registry of its own with these metrics."""
        registry = CollectorRegistry()
        registry.register(self)
        registry.register(self._counts.tick_seconds)
        return registry

    def collect(self) -> Iterator[Metric]:
        """Every metric, as prometheus_client asks for them."""
        counts, operator = self._counts, self._operator
        yield GaugeMetricFamily("selvage_leader_bool", "1: this replica leads.", value=float(self._leads()))
        yield CounterMetricFamily("selvage_turns", "Turns of the loop.", value=counts.turns)
        yield CounterMetricFamily(
            "selvage_failed_turns", "Turns in which the API server failed.", value=counts.failed_turns
        )
        yield GaugeMetricFamily("selvage_turn_seconds", "Time of the last turn.", value=counts.turn_s)
        writes = operator.publisher.writes
        yield CounterMetricFamily("selvage_status_writes", "Statuses written.", value=writes)
        loops = dict(operator.loops)
        yield from _of_policies(loops)
        yield from evidence_metrics(loops)
        yield from tally_metrics(dict(operator.tallies))
        yield from promotion_metrics(dict(operator.promotions.attempts))


def _of_policies(loops: dict[str, RouteLoop]) -> Iterable[Metric]:
    writes = CounterMetricFamily("selvage_route_writes", "Times that a route was written.", labels=["policy"])
    demoted = GaugeMetricFamily("selvage_demoted_bool", "1: the baseline drives.", labels=["policy"])
    age = GaugeMetricFamily(
        "selvage_telemetry_age_seconds", "Age of the newest scrape of any replica.", labels=["policy"]
    )
    weight = GaugeMetricFamily(
        "selvage_weight_ratio", "Share of a slice.", labels=["policy", "slice", "kernel"]
    )
    health = GaugeMetricFamily(
        "selvage_health_ratio", "Contract health H; 0 is without excess.",
        labels=["policy", "slice", "kernel"],
    )  # fmt: skip
    quarantined = GaugeMetricFamily(
        "selvage_quarantined_replicas", "Replicas out of rotation.", labels=["policy", "kernel"]
    )
    tokens = CounterMetricFamily(
        "selvage_probe_tokens", "Prompt tokens that probes sent.", labels=["policy", "kernel"]
    )
    unseen = GaugeMetricFamily(
        "selvage_unseen_bool", "1: something that should be seen is not; see TelemetryFresh.",
        labels=["policy"],
    )  # fmt: skip
    for name, loop in loops.items():
        _note_seeing(name, loop, tokens, unseen)
        writes.add_metric([name], loop.actuator.writes)
        turn, layout = loop.standing.turn, loop.setup.layout
        for s, k in np.ndindex(len(layout.slices), len(layout.kernels)):
            labels = [name, layout.slices[s], layout.kernels[k]]
            weight.add_metric(labels, float(loop.controller.state.table[0, s, k]))
            if turn is not None and turn.decision is not None:
                health.add_metric(labels, float(turn.decision.judgement.health[0, k, s]))
        for k, kernel in enumerate(layout.kernels):
            out = loop.controller.state.quarantined[0] & (layout.replica_kernel == k)
            quarantined.add_metric([name, kernel], int(out.sum()))
        if turn is not None and turn.decision is not None and turn.telemetry is not None:
            demoted.add_metric([name], float(turn.decision.demoted[0]))
            scraped_at_ms = np.fmax.reduce(turn.telemetry.scraped_at_ms[0])
            age.add_metric([name], float(turn.telemetry.now_ms[0] - scraped_at_ms) / MS_PER_S)
    return (writes, demoted, age, weight, health, quarantined, tokens, unseen)


def _note_seeing(name: str, loop: RouteLoop, tokens: CounterMetricFamily, unseen: GaugeMetricFamily) -> None:
    """What probes cost and whether something is not seen."""
    layout, sent = loop.setup.layout, loop.source.sent_tokens
    unseen.add_metric([name], float(bool(loop.unseen)))
    for k, kernel in enumerate(layout.kernels):
        own = [replica for replica, at in zip(layout.replicas, layout.replica_kernel, strict=True) if at == k]
        tokens.add_metric([name, kernel], float(sum(sent.get(replica, 0) for replica in own)))
