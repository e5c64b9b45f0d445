"""Discovers servers that were started elsewhere by their addresses: their ``/health`` and fingerprint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import httpx

from contracts.loading.untrusted import MALFORMED, json_of
from contracts.telemetry import ReplicaState
from live.bounded_http import whole_answer
from live.observe.scraper import AT_ONCE
from live.ports import LiveReplica, Unanswered

#: Characters of an error that are reported.
_MOST_TOLD = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One server of a pool."""

    name: str
    kernel: str
    url: str


def replica_addresses(servers: Mapping[str, Sequence[str]]) -> tuple[Address, ...]:
    """Servers by kernel as replicas called ``KERNEL-NUMBER``, in the pool's order."""
    return tuple(
        Address(name=f"{kernel}-{number}", kernel=kernel, url=url.rstrip("/"))
        for kernel, urls in servers.items()
        for number, url in enumerate(urls)
    )


class UrlDiscovery:
    """``live.ports.Discovery`` over fixed addresses. Call ``close`` at the end.

    Requests run in threads; a call returns at once with what is known. A server is ready while ``/health``
    says so. Its fingerprint is read when it becomes ready, from a completion of one token.
    """

    def __init__(
        self, servers: Sequence[Address], client: httpx.Client, model: str, timeout_s: float = 2.0
    ) -> None:
        self._servers, self._client, self._model, self._timeout_s = tuple(servers), client, model, timeout_s
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="discover")
        self._known = {
            one.name: LiveReplica(name=one.name, kernel=one.kernel, url=one.url, state=ReplicaState.STARTING)
            for one in self._servers
        }
        self._asked: dict[str, Future[LiveReplica]] = {}
        self._failed: dict[str, Unanswered] = {}

    def close(self) -> None:
        """Stop sending requests."""
        self._threads.shutdown(cancel_futures=True)

    def replicas(self) -> tuple[LiveReplica, ...]:
        """Every server as of its last answer; starts a new request to each."""
        for name in [name for name, asked in self._asked.items() if asked.done()]:
            self._known[name] = self._asked.pop(name).result()
        for one in self._servers:
            if one.name not in self._asked:
                self._asked[one.name] = self._threads.submit(self._seen, self._known[one.name])
        return tuple(self._known.values())

    def refresh(self) -> tuple[LiveReplica, ...]:
        """Every server as of now; waits for the answers."""
        found = self._threads.map(self._seen, self._known.values())
        self._known = {one.name: one for one in found}
        return tuple(self._known.values())

    @property
    def failed(self) -> dict[str, Unanswered]:
        """Server -> why it is not known to serve."""
        return dict(self._failed)

    def _seen(self, last: LiveReplica) -> LiveReplica:
        state, fingerprint, why = ReplicaState.DEAD, "", ""
        try:
            answer = whole_answer(self._client, "GET", f"{last.url}/health", self._timeout_s)
            why = f"HTTP {answer.status_code}"
            if answer.status_code == httpx.codes.OK:
                state, why = ReplicaState.READY, ""
                known = last.state == ReplicaState.READY
                fingerprint = last.fingerprint if known else self._fingerprint(last.url)
        except httpx.TimeoutException:
            # It is alive but does not answer. Probes and scrapes judge that, if it was ready before.
            state, fingerprint, why = last.state, last.fingerprint, f"no answer within {self._timeout_s:g} s"
        except Exception as error:  # whatever one server answers, the others are still checked
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:_MOST_TOLD]}"
        self._note(last.name, why)
        return LiveReplica(
            name=last.name, kernel=last.kernel, url=last.url, state=state, fingerprint=fingerprint
        )

    def _note(self, name: str, why: str) -> None:
        """Keep why a server does not serve; "" if it serves."""
        before = self._failed.pop(name, None)
        if why:
            self._failed[name] = Unanswered(
                why=f"/health: {why}", times=1 if before is None else before.times + 1
            )

    def _fingerprint(self, url: str) -> str:
        """The fingerprint that the server states; "" if it states none."""
        body = {"model": self._model, "prompt": [1, 2], "max_tokens": 1, "temperature": 0.0}
        try:
            where = f"{url}/v1/completions"
            answer = whole_answer(self._client, "POST", where, self._timeout_s, json=body)
            stated = json_of(answer.content).get("system_fingerprint")
        except (httpx.HTTPError, *MALFORMED):
            return ""
        return stated if isinstance(stated, str) else ""
