"""Metrics of promotions. Labels are bounded: promotions of a namespace, stages and verdicts of this build."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from contracts.assess.gate import GateOutcome
from controller.promotion.records import PromotionStage, most_ratio
from k8s.operator.promotion.records import Attempt


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
