"""The shipped alerts on made-up series: none while the operator is healthy, the right one otherwise."""

from __future__ import annotations

import pytest
import yaml

from tests.support.paths import ROOT
from tests.support.servers.promql import Labels, Series, evaluate, labels

ALERTS = ROOT / "k8s" / "manifests" / "alerts" / "rules.yaml"
RULES = {
    rule["alert"]: str(rule["expr"])
    for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["spec"]["groups"]
    for rule in group["rules"]
}
NOW_S = 100_000.0
LEADER = "selvage_leader_bool"
CHAT = labels(namespace="chat")


def steady(value: float, since_s: float = 7200.0, until_s: float = 0.0) -> list[tuple[float, float]]:
    """A series that was ``value`` from ``since_s`` to ``until_s`` seconds ago, scraped every 30 s."""
    first, last = int(NOW_S - since_s), int(NOW_S - until_s)
    return [(float(at_s), value) for at_s in range(first, last + 1, 30)]


def led(namespace: str, *leads: float, until_s: float = 0.0) -> Series:
    """Series of the replicas of one namespace's operator; ``leads``: 1 for the leader."""
    return {
        (LEADER, labels(namespace=namespace, pod=f"{namespace}-{n}")): steady(one, until_s=until_s)
        for n, one in enumerate(leads)
    }


def raised(alert: str, series: Series) -> set[Labels]:
    """Labels for which ``alert`` is raised."""
    return set(evaluate(RULES[alert], series, NOW_S))


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        (led("chat", 1.0), set()),
        (led("chat", 0.0, 1.0), set()),
        ({**led("chat", 1.0, 0.0), **led("code", 0.0, 1.0)}, set()),
        (led("chat", 0.0, 0.0), {CHAT}),
        ({**led("code", 1.0), **led("chat", 0.0, 0.0)}, {CHAT}),
        ({**led("code", 1.0), **led("chat", 1.0, until_s=600.0)}, {CHAT}),
        ({}, {labels()}),
    ],
    ids=["one", "two", "two namespaces", "followers alone", "one of two", "gone beside another", "nobody"],
)
def test_a_namespace_without_a_leader_raises_its_alert(series: Series, expected: set[Labels]) -> None:
    """Followers export 0, and a replica that is gone exports nothing; the alert names the namespace."""
    assert raised("SelvageNobodyLeads", series) == expected


#: Series of a healthy operator.
WELL: Series = {
    **led("chat", 0.0, 1.0),
    ("selvage_telemetry_age_seconds", labels(namespace="chat", policy="chat")): steady(1.2),
    ("selvage_health_ratio", labels(namespace="chat", policy="chat", kernel="fp8", slice="a")): steady(0.4),
    ("selvage_demoted_bool", labels(namespace="chat", policy="chat")): steady(0.0),
    ("selvage_unseen_bool", labels(namespace="chat", policy="chat")): steady(0.0),
    ("selvage_failed_turns_total", CHAT): steady(3.0),
    (
        "selvage_shield_interventions_total",
        labels(namespace="chat", policy="chat", reason="hard"),
    ): steady(5.0),
    ("selvage_promotion_verdict_bool", labels(promotion="p", kernel="next", verdict="Failed")): steady(0.0),
    **{
        ("selvage_tick_seconds_bucket", labels(namespace="chat", le=edge)): [
            (at_s, share * at_s) for at_s, _ in steady(0.0)
        ]
        for edge, share in (("0.1", 0.999), ("1.0", 1.0), ("+Inf", 1.0))
    },
}


@pytest.mark.parametrize("alert", sorted(RULES))
def test_a_healthy_operator_raises_no_alert(alert: str) -> None:
    """A healthy operator raises no alert."""
    assert raised(alert, WELL) == set()


#: Alert -> a metric that raises it, and the value.
BAD = {
    "SelvageTelemetryOld": ("selvage_telemetry_age_seconds", 61.0),
    "SelvageKernelBroken": ("selvage_health_ratio", 2.0),
    "SelvagePolicyDemoted": ("selvage_demoted_bool", 1.0),
    "SelvageNotSeen": ("selvage_unseen_bool", 1.0),
    "SelvagePromotionFailed": ("selvage_promotion_verdict_bool", 1.0),
}


@pytest.mark.parametrize("alert", sorted(BAD))
def test_a_bad_value_raises_its_own_alert_only(alert: str) -> None:
    """Each of these values raises its own alert and no other."""
    metric, value = BAD[alert]
    series = {key: steady(value) if key[0] == metric else found for key, found in WELL.items()}
    assert {one for one in RULES if raised(one, series)} == {alert}
