"""Leader election by a Lease. The caller renews it step by step, so no thread acts after the lease is lost.

As in client-go, a candidate measures on its own monotonic clock how long the record has not changed. The
timestamps in the record come from another host's wall clock: they are informational only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from kubernetes import client
from urllib3.exceptions import HTTPError

from k8s.operator.status.log_fields import fields

_LOG = logging.getLogger(__name__)
#: Lease duration, renewal deadline and retry interval, in s. A holder stops acting before its lease expires.
LEASE_S, RENEW_S, RETRY_S = 15, 10, 2
LEASE = "selvage-operator"


def _wall() -> datetime:
    return datetime.now(UTC)


class Leadership:
    """One candidate. steady_s: monotonic clock that decides, s; wall: clock for the Lease's timestamps."""

    def __init__(
        self,
        api: client.ApiClient,
        namespace: str,
        identity: str,
        timeout_s: float = 3.0,
        lease: str = LEASE,
        steady_s: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = _wall,
    ) -> None:
        self._leases, self._timeout_s = client.CoordinationV1Api(api), timeout_s
        self._namespace, self._name, self._identity = namespace, lease, identity
        self._steady_s, self._wall = steady_s, wall
        self._renewed_s = self._asked_s = self._seen_at_s = float("-inf")
        self._seen: dict[str, Any] | None = None
        self._led = False

    def step(self) -> bool:
        """Acquire or renew the lease if that is due; whether this candidate leads now."""
        self._ask()
        self._tell(self.leads())
        return self._led

    def goes_on(self) -> bool:
        """Whether this candidate still leads; renews the lease if due, but never acquires a lost one.

        With a slow server, a turn over many policies may take longer than the lease. After the lead was lost,
        what the turn has read is out of date.
        """
        if self.leads():
            self._ask()
        return self.leads()

    def _ask(self) -> None:
        """Acquire or renew the lease, where that is due."""
        now_s = self._steady_s()
        if now_s - self._asked_s < RETRY_S:
            return
        self._asked_s = now_s
        try:
            if self._acquired():
                self._renewed_s = now_s
        except (client.ApiException, HTTPError, OSError):
            pass  # not renewed: the lease expires by itself

    def leads(self) -> bool:
        """Whether the lease was renewed so recently that no other process can hold it."""
        return self._steady_s() - self._renewed_s < RENEW_S

    def leave(self) -> None:
        """Release the lease on shutdown, so that the next process need not wait until it expires.

        If the server does not answer, the lease expires by itself.
        """
        if not self.leads():
            return
        self._renewed_s, self._led = float("-inf"), False
        try:
            found = self._read()
            if found.spec is not None and found.spec.holder_identity == self._identity:
                found.spec.holder_identity = ""
                self._replace(found)
        except (client.ApiException, HTTPError, OSError):
            pass

    def _tell(self, leads: bool) -> None:
        """Log a change of leadership."""
        if leads is not self._led:
            message = "this replica leads" if leads else "this replica leads no more"
            _LOG.info("%s", message, extra=fields(identity=self._identity))
        self._led = leads

    def _acquired(self) -> bool:
        """Write the lease if it is free or held by this process; raises the client's errors on a conflict."""
        try:
            found = self._read()
        except client.ApiException as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            fresh = client.V1Lease(metadata={"name": self._name}, spec=self._record(None))
            self._leases.create_namespaced_lease(self._namespace, fresh, _request_timeout=self._timeout_s)
            return True
        if self._held_by_other(found.spec):
            return False
        found.spec = self._record(found.spec)
        self._replace(found)
        return True

    def _read(self) -> client.V1Lease:
        return self._leases.read_namespaced_lease(
            self._name, self._namespace, _request_timeout=self._timeout_s
        )

    def _replace(self, found: client.V1Lease) -> None:
        """Replace the lease; a conflict (409) if it changed since ``found`` was read."""
        self._leases.replace_namespaced_lease(
            self._name, self._namespace, found, _request_timeout=self._timeout_s
        )

    def _held_by_other(self, spec: client.V1LeaseSpec | None) -> bool:
        """Whether another process holds the lease and was seen to renew it less than ``LEASE_S`` ago."""
        seen = None if spec is None else spec.to_dict()
        if seen != self._seen:
            self._seen, self._seen_at_s = seen, self._steady_s()
        holder = "" if spec is None else spec.holder_identity or ""
        return holder not in ("", self._identity) and self._steady_s() - self._seen_at_s < LEASE_S

    def _record(self, before: client.V1LeaseSpec | None) -> client.V1LeaseSpec:
        now = self._wall()
        now = now.replace(microsecond=max(now.microsecond, 1))  # a server refuses an instant without them
        ours = before is not None and before.holder_identity == self._identity
        changes = 0 if before is None else (before.lease_transitions or 0) + (not ours)
        return client.V1LeaseSpec(
            holder_identity=self._identity,
            lease_duration_seconds=LEASE_S,
            acquire_time=before.acquire_time if ours and before is not None else now,
            renew_time=now,
            lease_transitions=changes,
        )
