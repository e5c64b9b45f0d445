"""Who leads, by the official client's Lease: asked step by step, so that no thread outlives its right."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Any

from kubernetes import client
from kubernetes.leaderelection.electionconfig import Config
from kubernetes.leaderelection.leaderelection import LeaderElection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock
from urllib3.exceptions import HTTPError

from k8s.operator.told import fields

_LOG = logging.getLogger(__name__)
#: A lease that nobody renewed for so long goes to the next one, who asked; who holds it stops acting earlier.
LEASE_S, RENEW_S, RETRY_S = 15, 10, 2
LEASE = "selvage-operator"


class Leadership:
    """One candidate."""

    def __init__(
        self,
        api: client.ApiClient,
        namespace: str,
        identity: str,
        timeout_s: float = 3.0,
        lease: str = LEASE,
    ) -> None:
        lock = LeaseLock(lease, namespace, identity)
        lock.api_instance = _Timed(client.CoordinationV1Api(api), timeout_s)
        config = Config(
            lock,
            lease_duration=LEASE_S,
            renew_deadline=RENEW_S,
            retry_period=RETRY_S,
            onstarted_leading=_nothing,
            onstopped_leading=_nothing,
        )
        self._election = LeaderElection(config)
        self._renewed_s = self._asked_s = float("-inf")
        self._identity, self._led = identity, False
        logging.getLogger("leaderelection").setLevel(logging.WARNING)

    def step(self) -> bool:
        """Ask or renew where that is due; whether this candidate leads now."""
        now_s = time.monotonic()
        if now_s - self._asked_s >= RETRY_S:
            self._asked_s = now_s
            try:
                if self._election.try_acquire_or_renew():
                    self._renewed_s = now_s
            except (client.ApiException, HTTPError, OSError):
                pass  # not renewed: the right to act ends by itself
        self._tell(self.leads())
        return self._led

    def leads(self) -> bool:
        """Whether the lease was renewed so lately that nobody else can have it."""
        return time.monotonic() - self._renewed_s < RENEW_S

    def _tell(self, leads: bool) -> None:
        """Say it where the lead was won or lost."""
        if leads is not self._led:
            told = "this replica leads" if leads else "this replica leads no more"
            _LOG.info("%s", told, extra=fields(identity=self._identity))
        self._led = leads


class _Timed:
    """The client's API with a time limit on every call."""

    def __init__(self, inner: client.CoordinationV1Api, timeout_s: float) -> None:
        self._inner, self._timeout_s = inner, timeout_s

    def __getattr__(self, name: str) -> Any:
        return partial(getattr(self._inner, name), _request_timeout=self._timeout_s)


def _nothing() -> None:
    """Nothing to do: ``step`` answers."""
