"""A namespace held in memory, and an operator over it whose servers give recorded answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from contracts.telemetry import FleetTelemetry, ReplicaState
from contracts.units import MS_PER_S
from k8s.operator.namespace import NamespaceOperator
from k8s.operator.objects import EventNote, Manifest, Resources
from k8s.operator.pods.pod_facts import IN_ROTATION
from k8s.operator.pods.returns import PodVerifier
from k8s.operator.route_loop import LoopParts
from k8s.operator.telemetry.pool_reader import Sensing
from k8s.routes.rules import Backend
from live.control.source import counted_by_servers, nothing_probed
from live.observe.metrics import EngineReading, parse_reading
from live.observe.record import TelemetryRecorder
from live.observe.scraper import LayoutReader
from live.ports import GatewaySample
from scripts.studies.operator.answers import answer
from scripts.studies.operator.resources import NAMESPACE, PoolSize, resources_of, route_of

_BEGAN_S = 1_800_000_000.0


class MemoryCluster:
    """``k8s.operator.objects.Cluster`` that answers at once and counts its calls."""

    namespace = NAMESPACE

    def __init__(self, pools: int, shape: PoolSize) -> None:
        self._resources, self._shape = resources_of(pools, shape), shape
        self._routes = {name: route_of(name) for name in self._resources.policies}
        self._configs: dict[str, Manifest] = {}
        self.calls = 0
        self.places_version = 1
        """The watched state: no pod of this world starts or stops."""

    @property
    def routes(self) -> MemoryCluster:
        """Itself."""
        return self

    def read(self, name: str) -> Manifest | None:
        """A route."""
        self.calls += 1
        return self._routes.get(name)

    def create(self, route: Manifest) -> Manifest:
        """Keep a route."""
        return self.replace(route)

    def replace(self, route: Manifest, *, trial: bool = False) -> Manifest:  # noqa: ARG002 - the port's
        """Keep a route."""
        self.calls += 1
        self._routes[route["metadata"]["name"]] = route
        return route

    def resources(self) -> Resources:
        """All of it."""
        self.calls += 1
        return self._resources

    def service(self, name: str) -> Manifest | None:
        """A Service that selects by the label."""
        self.calls += 1
        return {"spec": {"selector": {"selvage.dev/kernel": name, IN_ROTATION: "true"}}}

    def inference_pool(self, name: str) -> Manifest | None:  # noqa: ARG002 - the port's
        """None: every kernel of this world has a Service."""
        self.calls += 1
        return None

    def endpoint_slices(self, service: str) -> list[Manifest]:
        """Every pod of the Service, ready."""
        self.calls += 1
        endpoints = [
            {"addresses": [f"10.0.0.{n}"], "conditions": {"ready": True}, "targetRef": {"name": pod}}
            for n, pod in enumerate(self._pods_of(service))
        ]
        return [{"ports": [{"port": 8000}], "endpoints": endpoints}]

    def pods(self, selector: Mapping[str, str]) -> list[Manifest]:
        """Every pod of a kernel."""
        self.calls += 1
        names = self._pods_of(selector["selvage.dev/kernel"])
        return [{"metadata": {"name": name, "labels": {IN_ROTATION: "true"}}} for name in names]

    def label_pod(self, name: str, key: str, value: str) -> None:  # noqa: ARG002 - the port's
        """Nothing: no replica of this world departs."""
        self.calls += 1

    def write_status(self, found: Manifest, status: Manifest) -> None:  # noqa: ARG002
        """Nothing is read back."""
        self.calls += 1

    def note(self, event: EventNote) -> None:  # noqa: ARG002
        """Nothing is read back."""
        self.calls += 1

    def read_config(self, name: str) -> Manifest | None:
        """The stored state."""
        self.calls += 1
        return self._configs.get(name)

    def write_config(self, config: Manifest) -> None:
        """Keep a state."""
        self.calls += 1
        self._configs[config["metadata"]["name"]] = config

    def _pods_of(self, service: str) -> list[str]:
        return [f"{service}-{n}" for n in range(self._shape.replicas)]


@dataclass
class RecordedWorld:
    """The world: a clock that moves by hand, and what every server answers now."""

    cluster: MemoryCluster
    texts: list[str]
    parses: bool = True
    """False: readings are at hand."""
    now_s: float = _BEGAN_S
    turn: int = 0
    _reading: EngineReading | None = field(default=None)
    _reader: LayoutReader = field(default_factory=LayoutReader)

    def now_ms(self) -> float:
        """``Clock``."""
        return self.now_s * MS_PER_S

    def advance(self) -> None:
        """Advance one second."""
        self.now_s += 1.0
        self.turn += 1
        self._reading = parse_reading(self.texts[self.turn], self.now_s)

    def scrape(self, urls: Mapping[str, str]) -> dict[str, EngineReading]:
        """``Scrapes``: every server answers the text of this tick."""
        if not self.parses and self._reading is not None:
            return dict.fromkeys(urls, self._reading)
        text = self.texts[self.turn]
        return {name: self._reader.read(url, text, self.now_s) for name, url in urls.items()}

    def operator(self) -> NamespaceOperator:
        """An operator of this namespace."""
        parts = LoopParts(
            cluster=self.cluster,
            clock=self,
            source=self._source,
            now=lambda: datetime.fromtimestamp(self.now_s, UTC),
            shed=Backend(name="selvage-refuse", port=8080),
        )
        return NamespaceOperator(parts)

    def _source(self, sensing: Sensing) -> RecordedSource:
        return RecordedSource(self, sensing)


class RecordedSource:
    """Recorded answers, read within the turn (``telemetry.sensing.PoolTelemetry``); nothing is probed."""

    problem = ""
    failure = None

    def __init__(self, world: RecordedWorld, sensing: Sensing) -> None:
        self._world, self._discovery, self._layout = world, sensing.discovery, sensing.setup.layout
        self._recorder = TelemetryRecorder(self._layout, {})

    @property
    def verifier(self) -> PodVerifier | None:
        """No return is verified."""
        return None

    @property
    def sent_tokens(self) -> dict[str, int]:
        """No tokens."""
        return {}

    def read(self) -> FleetTelemetry:
        """The present answer of every ready pod."""
        replicas, now_s = self._discovery.replicas(), self._world.now_s
        urls = {one.name: one.url for one in replicas if one.state == ReplicaState.READY}
        readings = self._world.scrape(urls)
        nothing = GatewaySample(read_at_s=now_s, requests=(), attempts=(), hosts=(), unreadable=0)
        seen = self._recorder.record(now_s, replicas, readings, nothing, nothing_probed(self._layout))
        return counted_by_servers(seen, np.array([[name in readings for name in self._layout.replicas]]))

    def close(self) -> None:
        """Nothing is open."""


def recorded_world(pools: int, shape: PoolSize, turns: int) -> RecordedWorld:
    """A world of ``pools`` pools of one ``shape`` for this many turns."""
    return RecordedWorld(
        cluster=MemoryCluster(pools, shape), texts=[answer(float(n)) for n in range(turns + 1)]
    )
