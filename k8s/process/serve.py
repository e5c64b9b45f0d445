"""The operator's process: kopf watches resources; a level-triggered loop reads everything at every tick.

kopf's handlers change no resource: events only wake the loop, so there are no finalizers, and resources can
be deleted while the operator is down. A change whose event was missed shows in the next listing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import httpx
import kopf
from kubernetes import client
from prometheus_client import start_http_server

from contracts.telemetry import SampleRates
from k8s.api.cluster import ApiCluster
from k8s.api.connection import cluster_client
from k8s.api.watched import NamespaceWatch
from k8s.operator.admission import Documents
from k8s.operator.fleet import earlier_now
from k8s.operator.namespace import NamespaceOperator
from k8s.operator.promotion.calls import HookCaller
from k8s.operator.records.journal import open_journal
from k8s.operator.records.log_space import LogSpace
from k8s.operator.route_loop import LoopParts
from k8s.operator.status.log_fields import fields
from k8s.operator.status.outcomes import Evaluations
from k8s.operator.telemetry.pool_reader import PoolReader, Sensing
from k8s.operator.telemetry.pool_source import PoolSource, Watching
from k8s.operator.telemetry.probing import Access, probe_rates
from k8s.operator.telemetry.prometheus import PrometheusAccess, PrometheusScrapes
from k8s.process.election import Leadership
from k8s.process.health import ReplicaHealth, any_address, health_served
from k8s.process.logs import event_provider, event_sink
from k8s.process.metrics import LoopCounts, OperatorCollector
from k8s.resources.kinds import GROUP, VERSION, resource_named
from k8s.routes.rules import Backend
from live.artefacts.fetch import RegistryAccess
from live.control.clocks import SteadyClock, run_on_the_beat
from live.observe.metrics import EngineReading
from live.observe.scraper import Scraper

_LOG = logging.getLogger(__name__)
_WATCHED = ("KernelContract", "KernelPool", "RoutePolicy", "KernelPromotion")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """Settings of one replica of the operator."""

    namespace: str
    identity: str
    """Unique among replicas: the pod's name."""
    shed: Backend
    tick_s: float = 1.0
    advises: bool = False
    """Label pods with their contract's health, for other controllers to act on."""
    metrics_port: int | None = None
    health_port: int | None = None
    access: Access = field(default_factory=Access)
    watching: Watching = field(default_factory=Watching)
    journal: LogSpace | None = None
    """Where decision logs are kept; None: moves appear only as log lines."""
    webhook_origins: tuple[str, ...] = ()
    """Origins that promotion webhooks may call, as ``https://HOST:PORT``."""
    otel_events: bool = False
    """Send changed verdicts as OpenTelemetry events."""
    registries: RegistryAccess = field(default_factory=RegistryAccess)
    """Registries from which artefacts named in documents are fetched."""


class Loop:
    """The thread of the loop; ends when ``stop`` is set. On an error it sets ``stop`` and ``failed``."""

    def __init__(
        self,
        settings: OperatorSettings,
        api: client.ApiClient,
        asking: SharedConnections,
        stop: threading.Event,
        watched: NamespaceWatch | None = None,
        health: ReplicaHealth | None = None,
    ) -> None:
        self.health = health or ReplicaHealth()
        self._settings, self._stop, self._asking = settings, stop, asking
        self.failed = False
        self.leadership = Leadership(api, settings.namespace, settings.identity)
        clock = SteadyClock()
        parts = LoopParts(
            cluster=ApiCluster(api, settings.namespace, watched=watched),
            clock=clock,
            source=self._source,
            now=earlier_now(lambda: datetime.now(UTC), clock),
            shed=settings.shed,
            leads=self.leadership.goes_on,
            rates=self._rates,
            registries=settings.registries,
            journal=partial(open_journal, settings.journal),
            evaluations=asking.evaluations,
        )
        self.operator, self.counts = (
            NamespaceOperator(parts, advises=settings.advises, caller=asking.webhooks),
            LoopCounts(),
        )
        self._thread = threading.Thread(target=self._run, name="turns")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """Stop the loop and wait for its current turn; may be called more than once."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def turn(self) -> None:
        """One turn if this replica leads; a replica that lost the lead drops its state."""
        if not self.leadership.step():
            self.operator.forget()
            return
        began_at_s = time.monotonic()
        self.operator.turn()
        self.counts.turned(time.monotonic() - began_at_s, failed=self.operator.failed)

    def _run(self) -> None:
        try:
            self.health.compile(lambda: not self._stop.is_set())
            run_on_the_beat(self.turn, self._settings.tick_s, self._stop)
        except Exception:
            _LOG.exception("the loop ended; routes stay as they are")
            self.failed = True
        finally:
            self.operator.forget()
            self._stop.set()

    def _rates(self, documents: Documents) -> SampleRates:
        slices = [one.name for one in documents.contract.spec.slices]
        told = documents.pool.spec.prometheus
        scrape_s = self._settings.tick_s if told is None else told.scrape_interval_s
        return probe_rates(self._settings.watching.probing, slices, scrape_s)

    def _source(self, sensing: Sensing) -> PoolSource:
        asking, settings = self._asking, self._settings
        scrapes: PoolReader = asking.scrapes
        if sensing.documents.pool.spec.prometheus is not None:
            scrapes = PrometheusScrapes(sensing, settings.watching.prometheus, asking.prometheus)
        return PoolSource(sensing, settings.watching, scrapes, asking.gateways, settings.shed)


class SharedConnections:
    """HTTP clients that all policies share; only the one for servers sends the servers' API key."""

    def __init__(
        self,
        access: Access,
        webhook_origins: tuple[str, ...] = (),
        prometheus: PrometheusAccess | None = None,
        *,
        otel_events: bool = False,
        scrape_timeout_s: float = 1.0,
    ) -> None:
        self._scraper = Scraper(scrape_timeout_s, access.endpoint("http://pods").client())
        self.scrapes = SharedScrapes(self._scraper)
        self.gateways = httpx.Client()
        self.prometheus = (prometheus or PrometheusAccess()).client()
        self.webhooks = HookCaller(webhook_origins, access.ca_file)
        self._events = event_provider() if otel_events else None
        self.evaluations = None if self._events is None else Evaluations(event_sink(self._events))

    def __enter__(self) -> SharedConnections:
        """Itself."""
        self.webhooks.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Close all clients."""
        self.webhooks.__exit__()
        self._scraper.close()
        self.gateways.close()
        self.prometheus.close()
        if self._events is not None:
            self._events.shutdown()


class SharedScrapes(PoolReader):
    """One scraper shared by several policies; closing a policy's reader does not close it."""

    def __init__(self, inner: Scraper) -> None:
        self._inner = inner

    def scrape(self, urls: Mapping[str, str]) -> dict[str, EngineReading]:
        """Readings of the shared scraper."""
        return self._inner.scrape(urls)

    def close(self) -> None:
        """Does nothing: other policies still use the scraper."""


def _asking(settings: OperatorSettings) -> SharedConnections:
    watching = settings.watching
    return SharedConnections(
        settings.access,
        settings.webhook_origins,
        watching.prometheus,
        otel_events=settings.otel_events,
        scrape_timeout_s=watching.scrape_timeout_s,
    )


def serve(settings: OperatorSettings) -> bool:
    """Run until a stop signal; False if the loop ended with an unexpected error. Routes stay as they are.

    Raises kopf's or the client's errors if there is no cluster.
    """
    stop, health = threading.Event(), ReplicaHealth()
    about = fields(namespace=settings.namespace, identity=settings.identity)
    with (
        health_served(health, settings.health_port),
        cluster_client() as api,
        _asking(settings) as asking,
        NamespaceWatch(api, settings.namespace) as watched,
    ):
        _LOG.info("the operator begins", extra=about)
        loop = Loop(settings, api, asking, stop, watched, health)
        if settings.metrics_port is not None:
            collector = OperatorCollector(loop.operator, loop.counts, loop.leadership.leads)
            start_http_server(settings.metrics_port, any_address(), collector.register())
        try:
            kopf.run(
                registry=_handlers(loop),
                namespaces=[settings.namespace],
                standalone=True,
                stop_flag=stop,
            )
        finally:
            loop.end()
            loop.leadership.leave()
            _LOG.info("the operator ends; routes stay as they are", extra=about)
    return not loop.failed


def _handlers(loop: Loop) -> kopf.OperatorRegistry:
    """kopf's handlers: log-in, start-up, clean-up and the watched kinds."""
    registry = kopf.OperatorRegistry()

    def login(**context: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**context) or kopf.login_with_kubeconfig(**context)

    def begin(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.scanning.disabled = True  # a namespaced Role may not list definitions
        loop.start()

    def cease(**_: Any) -> None:
        loop.end()  # kopf waits for the flag in a thread of its own

    def nudge(**_: Any) -> None:
        loop.operator.nudge()

    kopf.on.login(registry=registry)(login)
    kopf.on.startup(registry=registry)(begin)
    kopf.on.cleanup(registry=registry)(cease)
    for kind in _WATCHED:
        kopf.on.event(GROUP, VERSION, resource_named(kind).plural, registry=registry)(nudge)
    return registry
