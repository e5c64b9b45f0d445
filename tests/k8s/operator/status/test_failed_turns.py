"""A failed turn shows in conditions, in counts and in the age of telemetry."""

from __future__ import annotations

import pytest

from contracts.telemetry import FleetTelemetry
from k8s.operator.telemetry.pool_reader import Sensing
from k8s.process.metrics import LoopCounts, OperatorCollector
from tests.support.cluster.cluster_worlds import Bench, MadeUp

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.waits]


class Breaking(MadeUp):
    """Telemetry of the bench that raises on request."""

    raises = False

    def read(self) -> FleetTelemetry:
        """The bench's telemetry, or an error."""
        if self.raises:
            raise RuntimeError("no telemetry\ntoday")
        return super().read()


class Broken:
    """A running sample whose turns can fail: in the source, or with an unexpected error in the loop."""

    def __init__(self, bench: Bench, where: str) -> None:
        bench.everything()
        self.bench, self.where, self.sources = bench, where, list[Breaking]()
        self.operator = bench.operator(source=self._source)
        self._collector = OperatorCollector(self.operator, LoopCounts(), lambda: True)
        bench.turns(self.operator, 6)

    def _source(self, sensing: Sensing) -> Breaking:
        self.sources.append(Breaking(self.bench, sensing))
        return self.sources[-1]

    def fail(self, turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Run ``turns`` turns that fail."""
        with monkeypatch.context() as patch:
            if self.where == "source":
                patch.setattr(self.sources[-1], "raises", True)
            else:
                patch.setattr(self.operator.loops["chat"], "begin", lambda: 1 / 0)
            self.bench.turns(self.operator, turns)

    def age_s(self) -> float:
        """Exported age of telemetry, s."""
        found = [one for metric in self._collector.collect() for one in metric.samples]
        return sum(one.value for one in found if one.name == "selvage_telemetry_age_seconds")


@pytest.mark.parametrize("where", ["source", "loop"])
def test_a_failed_turn_is_reported_and_counted_until_the_next_good_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """On either failure: Degraded, telemetry not fresh, failures counted, route and weights unchanged."""
    broken = Broken(bench, where)
    before, route = bench.read("RoutePolicy", "chat")["status"], bench.route()["spec"]
    assert bench.conditions()["Ready"][0] == "True"
    broken.fail(30, monkeypatch)
    found = bench.conditions()
    assert found["Ready"] == found["TelemetryFresh"] == ("False", "TurnFailed")
    assert found["Degraded"] == ("True", "TurnFailed")
    assert found["Accepted"][0] == "True"
    assert broken.age_s() >= 30.0
    assert bench.route()["spec"] == route
    assert bench.read("RoutePolicy", "chat")["status"]["slices"] == before["slices"]
    assert broken.operator.tallies["chat"].decisions["unread" if where == "source" else "failed"] == 30
    assert broken.operator.failed is (where == "loop")
    bench.turns(broken.operator, 3)
    assert bench.conditions()["Ready"] == ("True", "Serving")
    assert bench.conditions()["Degraded"][0] == "False"
    assert broken.age_s() <= 1.0
    assert not broken.operator.failed
