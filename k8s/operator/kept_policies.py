"""The state from which a policy continues: its loop's state, else the snapshot that an earlier leader stored.

If the API server does not answer, no loop is started: without the snapshot it would return pods to service
that are out of rotation, and lose their evidence. If the server refuses the read, the loop starts without the
snapshot, because waiting would not help.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from contracts.errors import DocumentError
from contracts.loading.oci import MissingArtefactError, OciUri
from contracts.units import MS_PER_S
from k8s.operator.objects import ClusterError
from k8s.operator.records.snapshot import Snapshot, config_name, read_snapshot
from k8s.operator.route_loop import LoopParts, RouteLoop
from k8s.operator.status.log_fields import fields

_LOG = logging.getLogger(__name__)
#: Interval between attempts to put stored documents in force.
TRY_AGAIN_S = 5.0


class KeptPolicies:
    """Snapshots of one operator's policies. missing: called with each artefact that must be fetched first."""

    def __init__(self, parts: LoopParts, missing: Callable[[OciUri], None]) -> None:
        self._parts, self._missing = parts, missing
        self._tried_at_s: dict[str, float] = {}
        self._problems: dict[str, str] = {}

    def forget(self, name: str) -> None:
        """Drop attempts and problems of policy ``name``, which runs now or was deleted."""
        self._tried_at_s.pop(name, None)
        self._problems.pop(name, None)

    def problem(self, name: str) -> str:
        """Why the stored snapshot of policy ``name`` is not in force, "" if no problem is known."""
        return self._problems.get(name, "")

    def snapshot(self, name: str, loop: RouteLoop | None) -> Snapshot:
        """The state of ``loop``, which is newer than any stored one; without a loop, the stored snapshot.
        Raises ClusterError if the server does not answer.
        """
        if loop is not None:
            return loop.snapshot()
        try:
            return read_snapshot(self._parts.cluster.read_config(config_name(name)))
        except ClusterError as error:
            if not error.refused:
                raise
            return Snapshot(documents=None, state="", problem=str(error))

    def last_good(self, name: str) -> RouteLoop | None:
        """A loop with the documents that an earlier leader stored; None if they are missing or invalid, or if
        it is too early to try again.
        """
        now_s = self._parts.clock.now_ms() / MS_PER_S
        if now_s - self._tried_at_s.get(name, float("-inf")) < TRY_AGAIN_S:
            return None
        self._tried_at_s[name] = now_s
        try:
            kept = self.snapshot(name, None)
            if kept.documents is not None:
                loop = RouteLoop(kept.documents, self._parts, kept)
                self.forget(name)
                return loop
        except MissingArtefactError as error:
            self._missing(error.uri)
            self._say(name, str(error))
        except (ClusterError, DocumentError, ValueError) as error:
            self._say(name, f"the kept documents are not in force: {error}")
        else:
            self._say(name, kept.problem)
        return None

    def _say(self, name: str, told: str) -> None:
        """Store a problem, and log it if it changed."""
        if told and told != self._problems.get(name):
            _LOG.warning("policy %s: %s", name, told, extra=fields(policy=name))
        self._problems[name] = told
