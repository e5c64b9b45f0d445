"""The drill runner's process: handles every FaultDrill of its namespace once a second, while it leads."""

from __future__ import annotations

import logging
import signal
import threading
import time
from dataclasses import dataclass, field

from kubernetes import client

from faults.drill.plan import TICK_S
from k8s.api.connection import cluster_client
from k8s.api.drills import ApiDrillCluster
from k8s.operator.artefacts import Artefacts
from k8s.operator.drills.admission import DrillPlace
from k8s.operator.drills.driver import DrillParts, Drills
from k8s.operator.drills.fleet import Entrance
from k8s.operator.drills.pods import Steering
from k8s.operator.status.log_fields import fields
from k8s.process.election import Leadership
from k8s.process.health import ReplicaHealth, health_served
from k8s.routes.rules import Backend
from live.artefacts.fetch import RegistryAccess
from live.control.clocks import run_on_the_beat

_LOG = logging.getLogger(__name__)
#: Lease of the drill runner; the operator has its own.
LEASE = "selvage-drills"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillSettings:
    """Settings of one replica of the drill runner. identity: unique among replicas, the pod's name."""

    namespace: str
    allowed: frozenset[str]
    identity: str
    entrance: Entrance
    steering: Steering
    shed: Backend
    registries: RegistryAccess = field(default_factory=RegistryAccess)
    health_port: int | None = None
    """Port for the kubelet's probes; None: probes are not answered."""


def drills_of(api: client.ApiClient, settings: DrillSettings, artefacts: Artefacts) -> Drills:
    """The drills of one namespace; ``artefacts`` fetches what their documents name."""
    return Drills(
        DrillParts(
            cluster=ApiDrillCluster(api, settings.namespace),
            place=DrillPlace(
                namespace=settings.namespace,
                allowed=settings.allowed,
                shed=settings.shed,
                missing=artefacts.want,
            ),
            entrance=settings.entrance,
            steering=settings.steering,
            now_s=time.time,
        )
    )


def serve_drills(settings: DrillSettings) -> None:
    """Run until TERM or Ctrl-C; faults still in force are undone before it returns."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    health = ReplicaHealth()
    with cluster_client() as api, health_served(health, settings.health_port):
        artefacts = Artefacts(settings.registries)
        drills = drills_of(api, settings, artefacts)
        leadership = Leadership(api, settings.namespace, settings.identity, lease=LEASE)
        about = fields(namespace=settings.namespace, identity=settings.identity)
        _LOG.info("the drill runner begins", extra=about)

        def turn_both() -> None:
            artefacts.turn(time.monotonic())
            turn(drills, leadership)
            health.waits_for = ""

        health.waits_for = "the first look at the cluster"
        try:
            run_on_the_beat(turn_both, TICK_S, stop)
        finally:
            drills.leave()
            leadership.leave()
            _LOG.info("the drill runner ends", extra=about)


def turn(drills: Drills, leadership: Leadership) -> None:
    """One turn if this replica leads; a replica that lost the lead undoes the faults that it injected."""
    if not leadership.step():
        drills.leave("another runner leads now")
        return
    before = drills.problem
    drills.turn()
    if drills.problem and drills.problem != before:
        _LOG.warning("%s", drills.problem)
