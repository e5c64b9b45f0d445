"""Metrics of the operator, of decisions and of promotions, read from its state at every scrape.

Labels are bounded: objects of a namespace, and stages, verdicts and reasons of this build.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from contracts.assess.gate import GateOutcome
from contracts.units import MS_PER_S
from controller.perceive.usual_speed import usual_ratios
from controller.promotion.records import PromotionStage, most_ratio
from k8s.operator.namespace import NamespaceOperator
from k8s.operator.promotion.records import Attempt
from k8s.operator.route_loop import RouteLoop
from k8s.operator.status.outcomes import Tally

#: Upper bucket edges of turn times, s; a turn should take a small part of its tick of one second.
TURN_EDGES_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def tick_histogram() -> Histogram:
    """Histogram of turn times, s, not yet in a registry."""
    message = "Time of a turn of every policy of the namespace."
    return Histogram("selvage_tick_seconds", message, buckets=TURN_EDGES_S, registry=None)


@dataclass(slots=True)
class LoopCounts:
    """Counts of the loop that are not in the operator's state."""

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
    """Collects all metrics of the operator. Labels are policies, slices, kernels and known reasons only."""

    def __init__(self, operator: NamespaceOperator, counts: LoopCounts, leads: Callable[[], bool]) -> None:
        self._operator, self._counts, self._leads = operator, counts, leads

    def register(self) -> CollectorRegistry:
        """A new registry with these metrics."""
        registry = CollectorRegistry()
        registry.register(self)
        registry.register(self._counts.tick_seconds)
        return registry

    def collect(self) -> Iterator[Metric]:
        """Every metric; called by prometheus_client at each scrape."""
        counts, operator = self._counts, self._operator
        yield GaugeMetricFamily("selvage_leader_bool", "1: this replica leads.", value=float(self._leads()))
        yield CounterMetricFamily("selvage_turns", "Turns of the loop.", value=counts.turns)
        yield CounterMetricFamily(
            "selvage_failed_turns", "Turns that failed for the server or a policy.", value=counts.failed_turns
        )
        yield GaugeMetricFamily("selvage_turn_seconds", "Time of the last turn.", value=counts.turn_s)
        writes = operator.publisher.writes
        yield CounterMetricFamily("selvage_status_writes", "Statuses written.", value=writes)
        loops = dict(operator.loops)
        yield from _of_policies(loops)
        yield from evidence_metrics(loops)
        yield from clock_metrics(loops)
        yield from tally_metrics(dict(operator.tallies))
        yield from promotion_metrics(dict(operator.promotions.attempts))


def _of_policies(loops: dict[str, RouteLoop]) -> Iterable[Metric]:
    policy, kernel = ["policy"], ["policy", "kernel"]
    cell = ["policy", "slice", "kernel"]
    writes = CounterMetricFamily("selvage_route_writes", "Times that a route was written.", labels=policy)
    demoted = GaugeMetricFamily("selvage_demoted_bool", "1: the baseline drives.", labels=policy)
    aged = "Age of the newest scrape of any replica."
    age = GaugeMetricFamily("selvage_telemetry_age_seconds", aged, labels=policy)
    weight = GaugeMetricFamily("selvage_weight_ratio", "Share of a slice.", labels=cell)
    health = GaugeMetricFamily("selvage_health_ratio", "Contract health H; 0 is without excess.", labels=cell)
    away = "Pods out of rotation."
    quarantined = GaugeMetricFamily("selvage_quarantined_replicas", away, labels=kernel)
    tokens = CounterMetricFamily("selvage_probe_tokens", "Prompt tokens that probes sent.", labels=kernel)
    blind = "1: something that should be seen is not; see TelemetryFresh."
    unseen = GaugeMetricFamily("selvage_unseen_bool", blind, labels=policy)
    for name, loop in loops.items():
        _note_seeing(name, loop, tokens, unseen)
        writes.add_metric([name], loop.actuator.writes)
        turn, layout = loop.standing.turn, loop.setup.layout
        for s, k in np.ndindex(len(layout.slices), len(layout.kernels)):
            labels = [name, layout.slices[s], layout.kernels[k]]
            weight.add_metric(labels, float(loop.controller.state.table[0, s, k]))
            if turn is not None and turn.decision is not None:
                health.add_metric(labels, float(turn.decision.judgement.health[0, k, s]))
        there = np.isin(layout.replicas, [pod.slot for pod in loop.discovery.pods])
        for k, one in enumerate(layout.kernels):
            out = loop.controller.state.quarantined[0] & (layout.replica_kernel == k) & there
            quarantined.add_metric([name, one], int(out.sum()))
        if turn is not None and turn.decision is not None:
            demoted.add_metric([name], float(turn.decision.demoted[0]))
        if turn is not None:  # against the current time: the age must grow while turns fail
            age.add_metric([name], (loop.clock.now_ms() - loop.standing.scraped_at_ms) / MS_PER_S)
    return (writes, demoted, age, weight, health, quarantined, tokens, unseen)


def _note_seeing(name: str, loop: RouteLoop, tokens: CounterMetricFamily, unseen: GaugeMetricFamily) -> None:
    """Add the tokens sent by probes, and whether the policy lacks data that it should have."""
    layout, sent = loop.setup.layout, loop.source.sent_tokens
    unseen.add_metric([name], float(bool(loop.unseen)))
    for k, kernel in enumerate(layout.kernels):
        own = [replica for replica, at in zip(layout.replicas, layout.replica_kernel, strict=True) if at == k]
        tokens.add_metric([name, kernel], float(sum(sent.get(replica, 0) for replica in own)))


def promotion_metrics(attempts: Mapping[str, Attempt]) -> Iterable[Metric]:
    """Stage, verdict, cap and window of every promotion in force."""
    own = ["promotion", "kernel"]
    stages = GaugeMetricFamily(
        "selvage_promotion_stage_bool", "1: the candidate is in this stage.", labels=[*own, "stage"]
    )
    verdicts = GaugeMetricFamily(
        "selvage_promotion_verdict_bool", "1: the promotion ended so.", labels=[*own, "verdict"]
    )
    most = GaugeMetricFamily(
        "selvage_promotion_most_ratio", "Largest share of a slice that the candidate may take.", labels=own
    )
    compliant = GaugeMetricFamily(
        "selvage_promotion_compliant_seconds", "Judged time since the candidate broke anything.", labels=own
    )
    for name, attempt in attempts.items():
        labels, state = [name, attempt.candidate], attempt.state
        for stage in PromotionStage:
            stages.add_metric([*labels, str(stage)], float(state.stage is stage))
        for verdict in GateOutcome:
            verdicts.add_metric([*labels, str(verdict)], float(state.verdict is verdict))
        most.add_metric(labels, most_ratio(state, attempt.terms))
        compliant.add_metric(labels, state.compliant_s)
    return (stages, verdicts, most, compliant)


def tally_metrics(tallies: Mapping[str, Tally]) -> Iterable[Metric]:
    """Decisions, interventions of the shield and demotions of every policy."""
    decisions = CounterMetricFamily(
        "selvage_decisions", "Turns of a policy by what they came to.", labels=["policy", "outcome"]
    )
    shield = CounterMetricFamily(
        "selvage_shield_interventions",
        "Rows of a slice that the shield changed, by reason.",
        labels=["policy", "reason"],
    )
    demotions = CounterMetricFamily(
        "selvage_demotions",
        "Times that the baseline took over, by the metric that the policy broke.",
        labels=["policy", "reason"],
    )
    for name, tally in tallies.items():
        for family, counts in (
            (decisions, tally.decisions),
            (shield, tally.interventions),
            (demotions, tally.demotions),
        ):
            for label, count in sorted(counts.copy().items()):
                family.add_metric([name, label], count)
    return (decisions, shield, demotions)


def evidence_metrics(loops: Mapping[str, RouteLoop]) -> Iterable[Metric]:
    """Evidence of the detectors, and observations behind it, per kernel and slice."""
    labels = ["policy", "slice", "kernel"]
    ratio = GaugeMetricFamily(
        "selvage_evidence_ratio",
        "Evidence of a broken clause over the alarm's threshold; 1: in alarm.",
        labels=labels,
    )
    behind = GaugeMetricFamily(
        "selvage_evidence_observations", "Probe observations behind the verdicts.", labels=labels
    )
    for name, loop in loops.items():
        turn, layout = loop.standing.turn, loop.setup.layout
        if turn is None or turn.decision is None:
            continue
        judgement = turn.decision.judgement
        for s, k in np.ndindex(len(layout.slices), len(layout.kernels)):
            place = [name, layout.slices[s], layout.kernels[k]]
            ratio.add_metric(place, float(judgement.evidence_ratio[0, k, s]))
            behind.add_metric(place, float(judgement.evidence_count[0, k, s]))
    return (ratio, behind)


def clock_metrics(loops: Mapping[str, RouteLoop]) -> Iterable[Metric]:
    """Usual step times, and how many replicas are judged against them, per kernel."""
    labels = ["policy", "kernel"]
    usual = GaugeMetricFamily(
        "selvage_usual_step_time_ratio",
        "Steps as long as usual, in times of the certified ones, of the middle replica that is judged.",
        labels=labels,
    )
    judged = GaugeMetricFamily(
        "selvage_judged_clocks_replicas", "Replicas of which it is known what is usual.", labels=labels
    )
    for name, loop in loops.items():
        layout, ratios = loop.setup.layout, usual_ratios(loop.controller.state)[0]
        for k, kernel in enumerate(layout.kernels):
            known = ratios[(layout.replica_kernel == k) & np.isfinite(ratios)]
            judged.add_metric([name, kernel], known.size)
            usual.add_metric([name, kernel], float(np.median(known)) if known.size else np.nan)
    return (usual, judged)
