"""The decision log of one policy on a volume; ``selvage explain`` and ``selvage replay`` read it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.documents import Document
from contracts.errors import SelvageError
from contracts.loading.files import write_pinned
from contracts.loading.loader import document_sha256, dump_text
from controller.options import ControllerSetup
from controller.state import ControllerState
from k8s.operator.fleet import slots
from k8s.operator.records.log_space import LogSpace
from k8s.operator.status.log_fields import fields
from k8s.operator.telemetry.pool_reader import Sensing
from live.control.journal import Beginning, DecisionLog, code_version, segments, turn_lines
from live.control.loop import Turn
from live.control.setup import LiveDocuments
from live.run.options import RunOptions, recipe

_LOG = logging.getLogger(__name__)

#: Number of newest files kept per log, each at most 48 MiB, or less if many policies share the space.
KEPT = 8


@dataclass(slots=True)
class PolicyJournal:
    """``Journal``: logs moves with their reasons; if there is a decision log, it records every turn."""

    policy: str
    setup: ControllerSetup
    log: DecisionLog | None
    route: str = ""
    """Name of the HTTPRoute, for log lines."""
    space: LogSpace | None = None
    """Disk space shared by all logs; None: not limited."""
    _full: bool = False

    def turn(self, turn: Turn) -> None:
        """Record ``turn``. Raises OSError if the volume is full; the hash chain stays intact."""
        if _moved(turn) or turn.healing:
            for one in turn_lines(turn, self.setup):
                about = fields(
                    policy=self.policy,
                    route=self.route,
                    slice=one.slice,
                    kernel=one.kernel,
                    replica=one.replica,
                )
                _LOG.info("policy %s: %s", self.policy, one.text, extra=about)
        if self.log is None:
            return
        if not self._takes():
            self.log.missed(turn)
            return
        self.log.turn(turn)
        for old in segments(self.log.folder)[:-KEPT]:
            old.unlink(missing_ok=True)

    def promoted(self, change: Mapping[str, Any]) -> None:
        """Record a change of a promotion's stage or verdict. A full volume is logged; nothing is raised."""
        if self.log is None:
            return
        try:
            self.log.promoted(change)
        except OSError as error:
            _LOG.warning("policy %s: a change of a promotion is not in the log: %s", self.policy, error)

    def close(self) -> None:
        """Close the file."""
        if self.log is not None:
            self.log.close()
            if self.space is not None:
                self.space.closed(self.log.folder)

    def _takes(self) -> bool:
        """Whether there is space for a turn. If there is none, a warning is logged once."""
        if self.space is None or self.log is None:
            return True
        full = not self.space.takes()
        resumes = self._full and not full  # with a file of its own, which begins with the state as it is now
        self.log.segment_bytes = 0 if resumes else self.space.segment_bytes
        if full and not self._full:
            message = "policy %s: no turn is logged: the logs take all of %d bytes; raise --decision-log-mib"
            _LOG.warning(message, self.policy, self.space.most_bytes, extra=fields(policy=self.policy))
        self._full = full
        return not full


def _moved(turn: Turn) -> bool:
    """Whether a weight or a quarantine changed, or in mode observe would have."""
    if turn.decision is None:
        return False
    changed = turn.decision.quarantined[0] != turn.before.quarantined[0]
    return bool(turn.decision.moved[0]) or bool(changed.any())


def open_journal(space: LogSpace | None, sensing: Sensing, state: ControllerState) -> PolicyJournal:
    """The journal of a policy. It continues the log under ``space``; without ``space``, it only logs moves.

    If the folder cannot be written or its hash chain is broken, a warning is logged and the policy runs
    without a decision log.
    """
    name, log = sensing.documents.policy.metadata.name, None
    if space is not None:
        try:
            place = space.folder / name
            told = recipe(*_written(place, sensing), slots(sensing.documents.pool), sensing.setup.fleet.rates)
            beginning = Beginning(
                setup=sensing.setup, state=state, documents=told, code_version=code_version()
            )
            space.opened(place)
            log = DecisionLog(place, beginning, space.segment_bytes)
        except (OSError, SelvageError) as error:
            space.closed(space.folder / name)
            _LOG.warning("policy %s: no decision log: %s", name, error, extra=fields(policy=name))
    route = sensing.documents.policy.spec.route.name
    return PolicyJournal(policy=name, setup=sensing.setup, log=log, route=route, space=space)


def _written(place: Path, sensing: Sensing) -> tuple[LiveDocuments, RunOptions]:
    """Write the documents beside the log in files named by hash, so that a replay finds them."""
    documents = sensing.documents
    found = LiveDocuments(
        pool=documents.pool,
        pool_file=_file(place, documents.pool),
        contract=documents.contract,
        policy=documents.policy,
        policy_file=_file(place, documents.policy),
    )
    observe = documents.policy.spec.mode == "observe"
    contract = str(_file(place, documents.contract).absolute())
    return found, RunOptions(policy=str(found.policy_file.absolute()), contract=contract, observe=observe)


def _file(place: Path, document: Document) -> Path:
    path = place / "documents" / f"{document_sha256(document)[:16]}.yaml"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_pinned(path, dump_text(document).encode())
    return path
