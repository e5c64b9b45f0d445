"""What a policy's telemetry is made of, and the port that brings it."""

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
    """What a telemetry source and a log are made of."""

    setup: ControllerSetup
    documents: Documents
    discovery: PodDiscovery
    clock: Clock
    namespace: str


class PoolReader(ServerReader, Protocol):
    """Reads the servers of one pool. A subclass that overrides nothing is complete."""

    failure: ReadFailure | None = None
    """Why no server is read at all now, None for nothing."""
    problem: str = ""
    """Which servers are not read and why, "" for nothing."""


class PoolTelemetry(TelemetrySource, Protocol):
    """Telemetry of one pool, until ``close``."""

    @property
    def problem(self) -> str:
        """Why something that should be seen is not, "" for nothing."""

    @property
    def failure(self) -> ReadFailure | None:
        """Why no server is read at all now, None for nothing."""

    @property
    def sent_tokens(self) -> dict[str, int]:
        """Prompt tokens of probes, by replica."""

    @property
    def verifier(self) -> PodVerifier | None:
        """Of pods that come back from quarantine; None: they come back unverified."""

    def close(self) -> None:
        """Nobody reads any more."""


def usual_rates(documents: Documents) -> SampleRates:  # noqa: ARG001 - the port's shape
    """The rates of a reader that states none."""
    return USUAL_RATES
