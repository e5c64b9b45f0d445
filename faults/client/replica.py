"""Client of one replica's fault injection: inject with a lease, renew, undo, and confirm each.

The undo record is written before the injection, so that another process can undo the fault if the caller
dies (``undo_record``); without such a process, the replica ends the fault when the lease expires.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.documents.scenario import ScheduledFault
from faults.client import record as records
from faults.client.wire import DrillError, ReplicaGoneError, steer
from faults.inside.document import FINAL_KINDS, WEIGHT_KINDS

_CALL_WITHIN_S = 10.0
_INJECT_WITHIN_S = 60.0


def wire_form(fault: ScheduledFault) -> dict[str, Any]:
    """The fields of a scheduled fault that an injector needs, as plain JSON."""
    wanted = {"name", "kind", "dose", "trigger", "live"}
    plain = fault.model_dump(mode="json", include=wanted, exclude_none=True)
    return plain | ({"kind": "requantise"} if fault.kind == "correlated" else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """A fault that a replica has accepted."""

    fault: dict[str, Any]
    evidence: dict[str, Any]
    """The replica's answer: canaries before and after, free blocks before and after, and the like."""
    record: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Whether a fault took effect, and the evidence."""

    happened: bool
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """Result of an undo; ``clean``: the canary equals the clean run's bit for bit, and caches are flushed."""

    clean: bool
    gone: bool = False
    """The replica is gone, and its injected faults with it."""


class ReplicaFaults:
    """Controls the faults of the replica at ``url``; ``records`` is the folder of undo records."""

    def __init__(self, url: str, token_file: Path, records: Path) -> None:
        self.url, self._token_file, self._records = url.rstrip("/"), token_file, records

    def inject(self, fault: ScheduledFault, ttl_s: float) -> Injected:
        """Inject ``fault`` for ``ttl_s`` seconds unless renewed; ``DrillError`` if it is not in force.

        After a failure the record stays open: a call that timed out may have reached the replica.
        """
        plain = wire_form(fault)
        path = records.path_for(self._records, fault.name, self.url)
        written = records.UndoRecord(
            url=self.url,
            token_file=str(self._token_file.resolve()),
            fault=plain,
            written_at_s=time.time(),
            ttl_s=ttl_s,
        )
        try:
            records.save(path, written)
        except OSError as error:
            message = f"{path}: the undo record cannot be written ({error.strerror or error})"
            raise DrillError(
                f"{message}, so nothing is injected; make room, and run the drill again"
            ) from None
        evidence = self._steer("inject", {"fault": plain, "ttl_s": ttl_s}, _INJECT_WITHIN_S)
        return Injected(fault=plain, evidence=evidence, record=path)

    def renew(self, ttl_s: float) -> float:
        """Extend the lease of the faults in force to ``ttl_s`` seconds from now; returns the seconds left."""
        return float(self._steer("renew", {"ttl_s": ttl_s})["lease_left_s"])

    def status(self) -> dict[str, Any]:
        """The faults in force, how much each has affected, and the faults that the lease has ended."""
        return self._steer("status")

    def undo(self, name: str = "") -> Undone:
        """End the fault called ``name``, or all, and close their records; idempotent.

        A record that cannot be closed stays open; the next process that finds it undoes the fault again.
        """
        outcome = _undone(lambda: self._steer("undo", {"name": name}, _INJECT_WITHIN_S))
        for path, kept in records.open_records(self._records):
            if kept.url == self.url and name in ("", kept.fault["name"]):
                with suppress(OSError):
                    records.save(path, kept.closed("gone" if outcome.gone else "undone"))
        return outcome

    def verify(self, injected: Injected) -> Proof:
        """Whether ``injected`` took effect: canaries that differ, or affected requests and steps."""
        kind, name = injected.fault["kind"], injected.fault["name"]
        if kind in FINAL_KINDS:
            return self._is_gone()
        status = self.status()
        if status["engine"] is None:
            return Proof(happened=kind == "hang", evidence="the engine answers no call")
        if kind in WEIGHT_KINDS and not injected.fault.get("trigger"):
            return _canaries(injected.evidence)
        faults = [*status["http"], *status["engine"]["faults"]]
        hits = sum(fault["hits"] for fault in faults if fault["name"] == name)
        return Proof(happened=hits > 0, evidence=f"struck {hits} times")

    def _is_gone(self) -> Proof:
        try:
            alive = self.status()["engine"] is not None
        except ReplicaGoneError as error:
            return Proof(happened=True, evidence=str(error))
        return Proof(happened=not alive, evidence="the engine answers" if alive else "the engine is dead")

    def _steer(
        self, action: str, body: dict[str, Any] | None = None, within_s: float = _CALL_WITHIN_S
    ) -> dict[str, Any]:
        return steer(self.url, action, self._token_file, body, within_s=within_s)


def undo_record(path: Path) -> Undone:
    """Undo the record at ``path``, from any process; a closed record is left alone."""
    kept = records.load(path)
    if kept.state != "open":
        return Undone(clean=kept.state == "undone", gone=kept.state == "gone")
    replica = ReplicaFaults(kept.url, Path(kept.token_file), path.parent)
    return replica.undo(kept.fault["name"])


def _undone(undo: Callable[[], dict[str, Any]]) -> Undone:
    try:
        answer = undo()
    except ReplicaGoneError:
        return Undone(clean=False, gone=True)
    if not answer["flushed"]:
        raise DrillError("the prefix cache could not be flushed: answers may still be poisoned; restart")
    return Undone(clean=bool(answer["canary_is_clean"]))


def _canaries(evidence: dict[str, Any]) -> Proof:
    """Whether the canary changed on every rank that exchanged a layer."""
    ranks = [rank for rank in evidence.get("ranks", [evidence]) if rank.get("layers", 1)]
    changed = [rank for rank in ranks if _is_changed(rank)]
    before, after = str(evidence.get("canary_before", "")), str(evidence.get("canary_after", ""))
    message = f" on {len(changed)} of {len(ranks)} ranks" if len(ranks) > 1 else ""
    return Proof(
        happened=bool(changed) and len(changed) == len(ranks),
        evidence=f"canary {before[:12]} became {after[:12]}{message}",
    )


def _is_changed(evidence: dict[str, Any]) -> bool:
    before = str(evidence.get("canary_before", ""))
    return bool(before) and before != evidence.get("canary_after", "")
