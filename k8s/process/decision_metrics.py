"""Metrics of decisions and of what they rest on. Labels are bounded: policies, slices and kernels of a
namespace, and outcomes and reasons of this build.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from k8s.operator.route_loop import RouteLoop
from k8s.operator.tally import Tally

#: Upper edges of times of a turn, s: a turn should take a small part of its tick of a second.
TURN_EDGES_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def tick_histogram() -> Histogram:
    """Times of turns, in seconds, in no registry yet."""
    told = "Time of a turn of every policy of the namespace."
    return Histogram("selvage_tick_seconds", told, buckets=TURN_EDGES_S, registry=None)


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
    """What the detectors have of every kernel on every slice."""
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
