"""The inputs of a policy's telemetry source, and the port of that source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from contracts.telemetry import SampleRates
from controller.fleet import USUAL_RATES
from controller.options import ControllerSetup
from controller.ports import Clock, TelemetrySource
from k8s.operator.admission import Documents
from k8s.operator.pods.replicas import PodDiscovery
from k8s.operator.pods.returns import PodVerifier
from live.control.source import ServerReader


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFailure:
    """Why no server is read. reason: one word for a condition."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensing:
    """Inputs for a telemetry source and a decision log."""

    setup: ControllerSetup
    documents: Documents
    discovery: PodDiscovery
    clock: Clock
    namespace: str


class PoolReader(ServerReader, Protocol):
    """Reads the servers of one pool. A subclass that overrides nothing is complete."""

    failure: ReadFailure | None = None
    """Why no server at all can be read now, None if servers can be read."""
    problem: str = ""
    """Which servers are not read and why, "" for none."""


class PoolTelemetry(TelemetrySource, Protocol):
    """Telemetry of one pool, until ``close``."""

    @property
    def problem(self) -> str:
        """Why telemetry is incomplete, "" if it is complete."""

    @property
    def failure(self) -> ReadFailure | None:
        """Why no server at all can be read now, None if servers can be read."""

    @property
    def sent_tokens(self) -> dict[str, int]:
        """Replica -> prompt tokens sent in probes."""

    @property
    def verifier(self) -> PodVerifier | None:
        """Verifies pods returning from quarantine; None: they return unverified."""

    def close(self) -> None:
        """Stop reading."""


def usual_rates(documents: Documents) -> SampleRates:  # noqa: ARG001 - the port's shape
    """Default rates, for a reader that states none."""
    return USUAL_RATES
