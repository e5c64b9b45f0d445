"""What a policy goes on from: what its loop knows, else what a leader before kept in the cluster.

A server that does not answer says nothing of what was kept: nobody begins then, because who began without it
would take pods back that were out of rotation, and evidence for lost. One that refuses it will go on to.
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
#: Kept documents that could not be put in force are tried again after so long.
TRY_AGAIN_S = 5.0


class KeptPolicies:
    """Of one operator. missing: told of artefacts that were not fetched."""

    def __init__(self, parts: LoopParts, missing: Callable[[OciUri], None]) -> None:
        self._parts, self._missing = parts, missing
        self._tried_at_s: dict[str, float] = {}
        self._problems: dict[str, str] = {}

    def forget(self, name: str) -> None:
        """Policy ``name`` is at work, or gone."""
        self._tried_at_s.pop(name, None)
        self._problems.pop(name, None)

    def problem(self, name: str) -> str:
        """Why nothing that was kept of policy ``name`` is in force, "" where nothing speaks against it."""
        return self._problems.get(name, "")

    def snapshot(self, name: str, loop: RouteLoop | None) -> Snapshot:
        """What ``loop`` knows, which is newer than what was kept. ClusterError while nobody says."""
        if loop is not None:
            return loop.snapshot()
        try:
            return read_snapshot(self._parts.cluster.read_config(config_name(name)))
        except ClusterError as error:
            if not error.refused:
                raise
            return Snapshot(documents=None, state="", problem=str(error))

    def last_good(self, name: str) -> RouteLoop | None:
        """A loop of the documents that a leader before kept; None where none are sound, or it is too early to
        try again.
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
        """Keep a problem, and log it where it is another one than before."""
        if told and told != self._problems.get(name):
            _LOG.warning("policy %s: %s", name, told, extra=fields(policy=name))
        self._problems[name] = told
