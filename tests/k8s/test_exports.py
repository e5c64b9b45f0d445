"""Queries of examples, alerts and the dashboard use metrics and labels that the operator exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from kubernetes import client
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from k8s.operator.advice import ADVICE, BROKEN
from k8s.operator.namespace import NamespaceOperator
from k8s.operator.objects import Cluster
from k8s.operator.pods.pod_facts import IN_ROTATION
from k8s.operator.route_loop import LoopParts
from k8s.process.metrics import LoopCounts, OperatorCollector
from tests.support.cluster.cluster_worlds import SAMPLE, SHED, Bench
from tests.support.cluster.promotions import everything, evidence, promote, until
from tests.support.paths import ROOT

pytestmark = pytest.mark.waits

EXAMPLES = SAMPLE.parent / "advise"
DASHBOARD = ROOT / "k8s" / "manifests" / "dashboard" / "selvage-operator.json"
ALERTS = ROOT / "k8s" / "manifests" / "alerts" / "rules.yaml"
#: Ends of names of gauges and histograms.
UNITS = {"bool", "observations", "ratio", "replicas", "seconds"}
#: Labels with few values: objects of a namespace, and words of this build. No pod and no message.
BOUNDED = {"policy", "slice", "kernel", "promotion", "stage", "verdict", "outcome", "reason", "le"}
#: Labels that Prometheus adds to targets in a cluster.
_OF_TARGETS = {"namespace"}
_SELECTED = re.compile(r"(selvage_[a-z_]+)(?:\{([^}]*(?:\{\{[^}]*\}\}[^}]*)*)\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!=|!~|=)")
_BY = re.compile(r"\bby\s*\(([^)]*)\)")

#: A cluster that is never called.
NOWHERE = cast(Cluster, SimpleNamespace(namespace=""))


def example(name: str) -> dict[str, Any]:
    """One example file."""
    return dict(yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")))


def panels() -> list[dict[str, Any]]:
    """Panels of the dashboard."""
    return list(json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"])


def queries() -> Iterator[str]:
    """Every shipped query."""
    yield example("flagger")["spec"]["query"]
    for one in example("argo-rollouts")["spec"]["metrics"]:
        yield one["provider"]["prometheus"]["query"]
    for panel in panels():
        yield from (target["expr"] for target in panel["targets"])
    for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["spec"]["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


def selected(query: str) -> Iterator[tuple[str, set[str]]]:
    """Metric and labels of each selector in ``query``; labels in ``by`` count for every selector."""
    grouped = {one.strip() for part in _BY.findall(query) for one in part.split(",")}
    for name, matchers in _SELECTED.findall(query):
        yield name, grouped | set(_MATCHER.findall(matchers))


def exported(registry: CollectorRegistry) -> dict[str, set[str]]:
    """Sample name -> labels; a metric without samples has an empty set."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        suffix = "_total" if family.type == "counter" else ""
        found.setdefault(family.name + suffix, set())
        for one in family.samples:
            found.setdefault(one.name, set()).update(one.labels)
    return found


def idle_registry() -> CollectorRegistry:
    """Metrics of an operator without resources."""
    parts = LoopParts(
        cluster=NOWHERE,
        clock=Bench(api=cast(client.ApiClient, None), namespace=""),
        source=lambda _: cast(Any, None),
        now=lambda: datetime.now(UTC),
        shed=SHED,
    )
    return OperatorCollector(NamespaceOperator(parts), LoopCounts(), lambda: True).register()


def test_every_metric_is_named_by_noun_and_unit() -> None:
    """A metric is a counter, whose samples end in _total, or its name ends in its unit."""
    text = generate_latest(idle_registry()).decode()
    families = [one for one in text_string_to_metric_families(text) if not one.name.endswith("_created")]
    assert len(families) >= 20
    for one in families:
        assert one.name.startswith("selvage_")
        assert one.type == "counter" or one.name.rsplit("_", 1)[1] in UNITS, one.name


def test_every_query_names_a_metric_that_is_exported() -> None:
    """Every query of examples, alerts and the dashboard names metrics that the operator exports."""
    known = exported(idle_registry())
    asked = [name for query in queries() for name, _ in selected(query)]
    assert len(asked) >= 15
    assert set(asked) <= known.keys()


@pytest.mark.needs("kube_api")
@pytest.mark.slow
def test_every_label_of_a_query_is_exported(api: client.ApiClient, namespace: str) -> None:
    """Labels of a working operator's samples are bounded, and every one that a query names is among them."""
    bench = Bench(api=api, namespace=namespace)
    everything(bench)
    promote(bench, evidence(bench))
    operator = bench.operator()
    until(bench, operator, "Shadow")
    known = exported(OperatorCollector(operator, LoopCounts(turns=3), lambda: True).register())
    assert set().union(*known.values()) <= BOUNDED
    for query in queries():
        for name, labels in selected(query):
            assert labels - _OF_TARGETS <= known[name], query


def test_the_dashboard_can_be_loaded() -> None:
    """Panels have distinct ids, do not overlap, and use the chosen data source."""
    found = panels()
    assert len({panel["id"] for panel in found}) == len(found)
    cells = [
        (x, y)
        for panel in found
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    for panel in found:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["description"]


def test_the_analysis_template_has_the_shape_of_its_kind() -> None:
    """The AnalysisTemplate has known fields and declared arguments, and tells inconclusive from success."""
    found = example("argo-rollouts")
    assert (found["apiVersion"], found["kind"]) == ("argoproj.io/v1alpha1", "AnalysisTemplate")
    declared = {one["name"] for one in found["spec"]["args"]}
    known = {
        "name",
        "interval",
        "count",
        "failureLimit",
        "inconclusiveLimit",
        "successCondition",
        "failureCondition",
        "provider",
    }
    for one in found["spec"]["metrics"]:
        assert set(one) <= known
        assert set(one["provider"]) == {"prometheus"}
        assert set(one["provider"]["prometheus"]) == {"address", "query"}
        used = set(re.findall(r"\{\{args\.(\w+)\}\}", json.dumps(one)))
        assert used <= declared
        assert one["inconclusiveLimit"] > 0
        assert one["successCondition"] != one["failureCondition"]


def test_the_metric_template_has_the_shape_of_its_kind() -> None:
    """The MetricTemplate has a Prometheus provider and one query with Flagger's variables."""
    found = example("flagger")
    assert (found["apiVersion"], found["kind"]) == ("flagger.app/v1beta1", "MetricTemplate")
    assert set(found["spec"]) == {"provider", "query"}
    assert found["spec"]["provider"]["type"] == "prometheus"
    used = set(re.findall(r"\{\{ ([\w.]+) \}\}", found["spec"]["query"]))
    assert used == {"namespace", "variables.policy", "variables.kernel"}


def test_the_endpoint_picker_reads_the_labels_that_are_written() -> None:
    """llm-d's configuration is consistent and filters out exactly the label's worst value."""
    config = yaml.safe_load(example("llm-d")["data"]["config.yaml"])
    assert (config["apiVersion"], config["kind"]) == ("llm-d.ai/v1alpha1", "EndpointPickerConfig")
    names = {one.get("name", one["type"]) for one in config["plugins"]}
    for profile in config["schedulingProfiles"]:
        assert {one["pluginRef"] for one in profile["plugins"]} <= names
    (filtered,) = (one for one in config["plugins"] if one["type"] == "label-selector-filter")
    rules = {one["key"]: one for one in filtered["parameters"]["matchExpressions"]}
    assert rules[ADVICE] == {"key": ADVICE, "operator": "NotIn", "values": [BROKEN]}
    assert rules[IN_ROTATION]["values"] == ["false"]


def test_every_example_is_listed() -> None:
    """Every folder of examples has a kustomization."""
    folders = [path for path in Path(SAMPLE.parent).iterdir() if path.is_dir()]
    assert {path.name for path in folders} >= {"advise", "chat", "promotion"}
    assert all((path / "kustomization.yaml").is_file() for path in folders)
