"""Telemetry of one pool's controller: scrapes and probes of pods, and the gateway's counts if configured."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import httpx

from contracts.errors import DocumentError, refusal
from contracts.telemetry import FleetTelemetry
from k8s.operator.admission import Documents
from k8s.operator.fleet import route_shape
from k8s.operator.pods.replicas import PodDiscovery
from k8s.operator.pods.returns import PodVerifier
from k8s.operator.telemetry.pool_reader import PoolReader, ReadFailure, Sensing
from k8s.operator.telemetry.probing import ClusterProber, Probing
from k8s.operator.telemetry.prometheus import PrometheusAccess
from k8s.routes.rules import Backend, backend_places, rule_slices
from live.control.setup import expected_fingerprints
from live.control.source import FleetSource, SourceParts
from live.gateway.prometheus import ClusterNames, GatewayMetrics
from live.ports import LiveReplica

#: Envoy Gateway's names of clusters: by rule, and by backend if there is one cluster per backend.
ENVOY_GATEWAY = r"httproute/{namespace}/{route}/rule/(?P<slice>\d+)(/backend/(?P<kernel>\d+))?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """How an operator observes servers. probing None: nothing is probed. gateways: addresses of proxies'
    Prometheus metrics; clusters: pattern of their cluster names, with ``{namespace}`` and ``{route}`` to fill
    in. prometheus: servers that a pool may use instead of scrapes. scrape_timeout_s: of one scrape.
    """

    probing: Probing | None = None
    gateways: tuple[str, ...] = ()
    clusters: str = ENVOY_GATEWAY
    prometheus: PrometheusAccess = field(default_factory=PrometheusAccess)
    scrape_timeout_s: float = 1.0

    def __post_init__(self) -> None:
        """Raises DocumentError if ``clusters`` is not a regular expression with the group ``slice``."""
        try:
            groups = re.compile(self.clusters).groupindex
        except re.error as error:
            raise self._pattern_refusal(f"an error: {error}") from None
        if "slice" not in groups:
            raise self._pattern_refusal("none")

    def _pattern_refusal(self, actual: str) -> DocumentError:
        expected = "a regular expression with the groups slice and kernel"
        hint = r"for example (?P<slice>\w+)_(?P<kernel>\w+)"
        return refusal("--gateway-clusters", expected, actual, hint)

    def names(self, sensing: Sensing, shed: Backend) -> ClusterNames:
        """Names of the gateway's clusters for a policy's route."""
        layout, route = sensing.setup.layout, sensing.documents.policy.spec.route.name
        shape = route_shape(sensing.documents, layout, shed)
        filled = self.clusters.replace("{namespace}", re.escape(sensing.namespace))
        kernels = {caught: [*layout.kernels, ""][at] for caught, at in backend_places(shape).items()}
        return ClusterNames(
            pattern=re.compile(filled.replace("{route}", re.escape(route))),
            slices=rule_slices(shape),
            kernels=kernels | {name: name for name in layout.kernels},
        )


class PoolSource:
    """``k8s.operator.telemetry.pool_reader.PoolTelemetry`` of one pool. client: for the gateway's metrics."""

    def __init__(
        self, sensing: Sensing, watching: Watching, scrapes: PoolReader, client: httpx.Client, shed: Backend
    ) -> None:
        self._reader = scrapes
        self._gateway: GatewayMetrics | None = None
        if watching.gateways:
            self._gateway = GatewayMetrics(watching.gateways, watching.names(sensing, shed), client)
        self._discovery = sensing.discovery
        self._prober = None if watching.probing is None else ClusterProber(watching.probing, sensing)
        self._fleet = FleetSource(
            SourceParts(
                layout=sensing.setup.layout,
                discovery=FingerprintDiscovery(sensing.discovery, self._prober),
                scraper=scrapes,
                clock=sensing.clock,
                statistics=self._gateway,
                prober=self._prober,
                fingerprints=fingerprints(sensing.documents),
            )
        )

    @property
    def problem(self) -> str:
        """Why telemetry is incomplete, "" if it is complete."""
        parts = (self._reader, self._prober, self._gateway)
        said = [part.problem for part in parts if part is not None]
        failed = [] if self.failure is None else [self.failure.message]
        return "; ".join(filter(None, (*failed, *said)))

    @property
    def failure(self) -> ReadFailure | None:
        """Why no server at all can be read, None if servers can be read."""
        return self._reader.failure

    @property
    def sent_tokens(self) -> dict[str, int]:
        """Replica -> prompt tokens sent in probes."""
        return {} if self._prober is None else self._prober.sent_tokens

    @property
    def verifier(self) -> PodVerifier | None:
        """Verifies pods returning from quarantine; None: they return unverified."""
        return None if self._prober is None else self._prober.verifier

    def read(self) -> FleetTelemetry:
        """All telemetry since the last call."""
        if self._prober is not None:
            self._discovery.note(self._prober.stated)
        return self._fleet.read()

    def close(self) -> None:
        """Stop reading. Requests in flight are not waited for, because ticks of other pools must not wait."""
        self._fleet.close(wait=False)
        for part in (self._prober, self._gateway):
            if part is not None:
                part.close()


def fingerprints(documents: Documents) -> dict[str, str]:
    """Kernel -> fingerprint expected of its servers. For the candidate of an upgrade in place, the announced
    fingerprint is used if the pool states none.
    """
    announced = {one.candidate: one.fingerprint for one in documents.announced}
    return announced | expected_fingerprints(documents.pool)


class FingerprintDiscovery:
    """``Discovery`` that takes a pod's fingerprint from its answers if its annotation is missing.

    If a replica states the fingerprint announced for an upgrade of its kernel, its fingerprint is reported as
    unknown, because the replica is about to be assigned to the candidate.
    """

    def __init__(self, inner: PodDiscovery, prober: ClusterProber | None) -> None:
        self._inner, self._prober = inner, prober

    def replicas(self) -> tuple[LiveReplica, ...]:
        """The replicas, with fingerprints from annotations or answers."""
        stated = {} if self._prober is None else self._prober.stated
        return tuple(self._with_fingerprint(one, stated.get(one.name, "")) for one in self._inner.replicas())

    def _with_fingerprint(self, one: LiveReplica, stated: str) -> LiveReplica:
        found = one.fingerprint or stated
        upgraded = any(a.kernel == one.kernel and a.fingerprint == found for a in self._inner.announced)
        return replace(one, fingerprint="" if upgraded else found)
