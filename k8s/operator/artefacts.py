"""Fetches OCI artefacts that documents name in a thread, so that the operator's loop never waits for one."""

from __future__ import annotations

import logging
import math
import threading
from dataclasses import dataclass

from contracts.errors import DocumentError
from contracts.loading.oci import OciUri
from live.artefacts.fetch import RegistryAccess, fetch

_LOG = logging.getLogger(__name__)
#: Seconds until a failed fetch is tried again.
FETCH_AGAIN_S = 30.0
#: An artefact that was not requested for this long is dropped: its document was corrected or deleted.
UNWANTED_S = 4.0 * FETCH_AGAIN_S


@dataclass(frozen=True, slots=True)
class _Held:
    """Documents that wait for an artefact. wanted: fingerprint of the documents; version:
    ``Artefacts.version`` when they began to wait; uri: the artefact.
    """

    wanted: str
    version: int
    uri: OciUri


@dataclass(slots=True)
class _Wanted:
    """An artefact to fetch. problem: why the last fetch failed; again_at_s: time of the next fetch;
    asked_at_s: time of the last request.
    """

    uri: OciUri
    problem: str = ""
    again_at_s: float = float("-inf")
    asked_at_s: float = float("-inf")
    told: str = ""  # the last problem that was logged


class Artefacts:
    """The artefacts that one operator fetches, one at a time, in a daemon thread."""

    def __init__(self, access: RegistryAccess) -> None:
        self._access = access
        self._held: dict[str, _Held] = {}
        self._wanted: dict[str, _Wanted] = {}
        self._thread: threading.Thread | None = None
        self._asked: _Wanted | None = None
        self._now_s = float("-inf")
        self.version = 0
        """Number of artefacts fetched so far. When it rises, waiting documents are tried again."""

    def want(self, uri: OciUri) -> None:
        """Request ``uri`` from the next turn on. Repeat the request for as long as it is needed."""
        self._wanted.setdefault(uri.artefact, _Wanted(uri)).asked_at_s = self._now_s

    def hold(self, name: str, wanted: str, uri: OciUri) -> str:
        """Let documents ``wanted`` of policy ``name`` wait for ``uri``; returns the text for their status."""
        self.want(uri)
        self._held[name] = _Held(wanted, self.version, uri)
        return self._problem(uri)

    def held(self, name: str, wanted: str) -> str:
        """Why documents ``wanted`` of policy ``name`` still wait, "" if they may be tried again."""
        known = self._held.get(name)
        if known is None or (known.wanted, known.version) != (wanted, self.version):
            return ""
        self.want(known.uri)
        return self._problem(known.uri)

    def _problem(self, uri: OciUri) -> str:
        """Why ``uri`` is not fetched yet."""
        known = self._wanted.get(uri.artefact)
        return f"{uri.artefact} is being fetched" if known is None or not known.problem else known.problem

    def turn(self, now_s: float) -> None:
        """Take the result of a finished fetch and start the next one that is due. Never waits."""
        self._now_s = now_s
        if self._thread is not None and self._thread.is_alive():
            return
        if self._asked is not None:
            self._settle(self._asked, now_s)
        for one in self._wanted.values():
            if math.isinf(one.asked_at_s):  # before the first turn
                one.asked_at_s = now_s
        self._wanted = {
            name: one for name, one in self._wanted.items() if now_s - one.asked_at_s < UNWANTED_S
        }
        due = [one for one in self._wanted.values() if now_s >= one.again_at_s]
        if due:
            self._asked = min(due, key=lambda one: one.again_at_s)
            self._thread = threading.Thread(target=self._fetch, args=(self._asked,), daemon=True, name="oci")
            self._thread.start()

    def _settle(self, asked: _Wanted, now_s: float) -> None:
        self._asked = self._thread = None
        if asked.problem:
            asked.again_at_s = now_s + FETCH_AGAIN_S
            if asked.problem != asked.told:
                _LOG.warning("not fetched: %s", asked.problem)
            asked.told = asked.problem
            return
        self._wanted.pop(asked.uri.artefact, None)
        self.version += 1

    def _fetch(self, asked: _Wanted) -> None:
        try:
            fetch(asked.uri, self._access)
        except DocumentError as error:
            asked.problem = str(error)
        except Exception as error:  # whatever a registry answers, the loop goes on
            _LOG.exception("fetching %s failed unforeseen", asked.uri.artefact)
            asked.problem = f"{asked.uri.artefact}: not fetched ({type(error).__name__})"
        else:
            asked.problem = ""
