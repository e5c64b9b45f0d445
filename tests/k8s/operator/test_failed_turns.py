"""A turn that failed does not look well: conditions, counts and the age of telemetry say so."""

from __future__ import annotations

import pytest

from contracts.telemetry import FleetTelemetry
from k8s.operator.sensing import Sensing
from k8s.process.metrics import LoopCounts, OperatorCollector
from tests.support.cluster_worlds import Bench, MadeUp

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.timeout(600)]


class Breaking(MadeUp):
    """Telemetry of the bench that raises where it is asked to."""

    raises = False

    def read(self) -> FleetTelemetry:
        """What the bench says, or an error."""
        if self.raises:
            raise RuntimeError("no telemetry\ntoday")
        return super().read()


@pytest.mark.parametrize("where", ["source", "loop"])
def test_a_failed_turn_is_said_and_counted_and_ends_with_the_next_good_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Whether the source fails or what nobody foresaw: Degraded, not fresh, counted, and the rest stays."""
    bench.everything()
    sources: list[Breaking] = []

    def source(sensing: Sensing) -> Breaking:
        sources.append(Breaking(bench, sensing))
        return sources[-1]

    operator = bench.operator(source=source)
    collector = OperatorCollector(operator, LoopCounts(), lambda: True)

    def read(name: str) -> float:
        found = [one for metric in collector.collect() for one in metric.samples if one.name == name]
        return sum(one.value for one in found)

    bench.turns(operator, 6)
    before, route = bench.read("RoutePolicy", "chat")["status"], bench.route()["spec"]
    assert bench.conditions()["Ready"][0] == "True"
    if where == "source":
        sources[-1].raises = True
        bench.turns(operator, 30)
    else:
        with monkeypatch.context() as patch:
            patch.setattr(operator.loops["chat"], "begin", lambda: 1 / 0)
            bench.turns(operator, 30)
    found = bench.conditions()
    assert found["Ready"] == ("False", "TurnFailed")
    assert found["TelemetryFresh"] == ("False", "TurnFailed")
    assert found["Degraded"] == ("True", "TurnFailed")
    assert found["Accepted"][0] == "True"
    assert read("selvage_telemetry_age_seconds") >= 30.0
    assert bench.route()["spec"] == route
    assert bench.read("RoutePolicy", "chat")["status"]["slices"] == before["slices"]
    outcomes = operator.tallies["chat"].decisions
    assert outcomes["unread" if where == "source" else "failed"] == 30
    assert operator.failed is (where == "loop")
    sources[-1].raises = False
    bench.turns(operator, 3)
    assert bench.conditions()["Ready"] == ("True", "Serving")
    assert bench.conditions()["Degraded"][0] == "False"
    assert read("selvage_telemetry_age_seconds") <= 1.0
    assert not operator.failed
