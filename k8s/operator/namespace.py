"""The operator of one namespace: every turn looks at what is there, and needs no memory of events.

One policy that fails, whatever it is, does not stop the others.
"""

from __future__ import annotations

import logging
import threading

from contracts.documents import KernelContract, KernelPool
from contracts.errors import DocumentError
from contracts.loading.loader import document_sha256
from contracts.units import MS_PER_S
from k8s.operator.admission import Documents, Verdict, judge_document, judge_policy
from k8s.operator.advice import Advisor
from k8s.operator.conditions import Condition, condition
from k8s.operator.objects import ClusterError, Manifest, Resources
from k8s.operator.promotion.driver import Promotions
from k8s.operator.publisher import Publisher, Said
from k8s.operator.report import policy_body, policy_conditions, pool_body, pool_conditions
from k8s.operator.route_loop import Parts, RouteLoop
from k8s.operator.snapshot import Snapshot, config_name, read_snapshot
from k8s.resources.objects import document_of

_LOG = logging.getLogger(__name__)

#: Resources are listed again after so long, whatever the watches say.
RESYNC_S = 5.0


class NamespaceOperator:
    """Drives every RoutePolicy of one namespace; only who leads calls ``turn``."""

    def __init__(self, parts: Parts, *, advises: bool = False) -> None:
        self.parts = parts
        self.advisor = Advisor(parts.cluster) if advises else None
        self.publisher = Publisher(parts.cluster)
        self.loops: dict[str, RouteLoop] = {}
        self.promotions = Promotions(parts.cluster)
        self.problem = ""
        """What the server said against the last turn, "" for nothing."""
        self._seen: Resources | None = None
        self._listed_at_s = float("-inf")
        self._nudged = threading.Event()
        self._refused: dict[str, tuple[str, str]] = {}

    def nudge(self) -> None:
        """Something changed: list at the next turn. Called from any thread."""
        self._nudged.set()

    def forget(self) -> None:
        """Somebody else leads, or this process ends: what is known here grows old."""
        for name in list(self.loops):
            self._drop(name)
        self.promotions.forget()
        if self.advisor is not None:
            self.advisor.forget()
        self._refused.clear()
        self._seen = None

    def turn(self) -> None:
        """One tick of every policy. Nothing is raised for what the server or a policy does."""
        now_s = self.parts.clock.now_ms() / MS_PER_S
        self._list(now_s)
        if self._seen is None:
            return
        for name in sorted(self._seen.policies):
            if not self.parts.leads():
                return
            try:
                self._policy(name, self._seen, now_s)
            except Exception:  # a bug in one policy must not stop the others
                _LOG.exception("policy %s: the turn failed, its route stays", name)
        self._documents(self._seen, now_s)

    def _list(self, now_s: float) -> None:
        if not self._nudged.is_set() and now_s - self._listed_at_s < RESYNC_S and self._seen is not None:
            return
        self._nudged.clear()
        try:
            self._seen, self.problem = self.parts.cluster.resources(), ""
        except ClusterError as error:
            self.problem = str(error)
            return
        self._listed_at_s = now_s
        for name in self.loops.keys() - self._seen.policies.keys():
            self._drop(name)  # its route stays as it is

    def _policy(self, name: str, seen: Resources, now_s: float) -> None:
        found = seen.policies[name]
        verdict = judge_policy(name, seen, self.parts.cluster.namespace)
        verdict = self._in_force(name, self.promotions.admit(name, verdict, seen))
        loop = self.loops.get(name)
        suspended = bool(found["spec"].get("suspend"))
        if loop is not None and not suspended and loop.due(now_s):
            loop.turn(verdict.documents or loop.documents)
            self.promotions.turned(name, loop)
            if self.advisor is not None:
                self.advisor.turned(loop)
            if problem := loop.keep(found):
                _LOG.warning("policy %s: %s", name, problem)
        body = {} if suspended else policy_body(loop)
        conditions = policy_conditions(verdict, loop, suspended)
        self.publisher.say(Said(about=found, conditions=conditions, body=body, key=body), now_s)

    def _in_force(self, name: str, verdict: Verdict) -> Verdict:
        """Take the documents of ``verdict`` into force; the verdict with what speaks against that."""
        documents, loop = verdict.documents, self.loops.get(name)
        if documents is None:
            if loop is None and verdict.accepted.reason != "RouteTaken":
                self._last_good(name)
            return verdict
        wanted = fingerprint(documents)
        if loop is not None and fingerprint(loop.documents) == wanted:
            return verdict
        if self._refused.get(name, ("", ""))[0] == wanted:
            return _with_problem(verdict, self._refused[name][1])
        try:
            fresh = RouteLoop(documents, self.parts, self._kept(name))
        except (DocumentError, ValueError) as error:
            self._refused[name] = wanted, str(error)
            if loop is None:
                self._last_good(name)
            return _with_problem(verdict, str(error))
        self._drop(name)
        self.loops[name] = fresh
        self._refused.pop(name, None)
        return verdict

    def _drop(self, name: str) -> None:
        loop = self.loops.pop(name, None)
        if loop is not None:
            loop.close()

    def _last_good(self, name: str) -> None:
        """Go on with the documents that a leader before kept, where those of today are not sound."""
        kept = self._kept(name)
        if kept.documents is None:
            return
        try:
            self.loops[name] = RouteLoop(kept.documents, self.parts, kept)
        except (DocumentError, ValueError) as error:
            _LOG.warning("policy %s: the kept documents fit no more: %s", name, error)

    def _kept(self, name: str) -> Snapshot:
        loop = self.loops.get(name)
        if loop is not None:  # what is in memory is newer than what was kept
            return loop.snapshot()
        try:
            return read_snapshot(self.parts.cluster.read_config(config_name(name)))
        except ClusterError as error:
            return Snapshot(documents=None, state="", problem=str(error))

    def _documents(self, seen: Resources, now_s: float) -> None:
        """Status of pools and contracts."""
        routed = {loop.documents.pool.metadata.name: loop for loop in self.loops.values()}
        for name, found in seen.pools.items():
            loop = routed.get(name)
            accepted = judge_document(found, KernelPool)
            body = {} if loop is None else pool_body(loop)
            key = [[row["name"], row["ready"], row["clause"]] for row in body.get("kernels", [])]
            conditions = pool_conditions(accepted, loop)
            self.publisher.say(Said(about=found, conditions=conditions, body=body, key=key), now_s)
        for found in seen.contracts.values():
            accepted = judge_document(found, KernelContract)
            body = _contract_body(found, accepted)
            self.publisher.say(Said(about=found, conditions=(accepted,), body=body, key=body), now_s)
        self.promotions.say(self.publisher, seen, now_s)
        self.publisher.forget(_uids(seen))


def fingerprint(documents: Documents) -> str:
    """What of the documents a running loop depends on; break-glass and suspension change nothing of it."""
    spec = documents.policy.spec.model_copy(update={"freeze": None, "suspend": None})
    policy = documents.policy.model_copy(update={"spec": spec})
    mirrors = repr(documents.mirrors) if documents.mirrors else ""
    return "".join(document_sha256(one) for one in (policy, documents.pool, documents.contract)) + mirrors


def _with_problem(verdict: Verdict, problem: str) -> Verdict:
    resolved = condition("ResolvedRefs", False, "DoesNotFit", problem)
    return Verdict(accepted=verdict.accepted, resolved=resolved, documents=None)


def _contract_body(found: Manifest, accepted: Condition) -> dict[str, str]:
    return {"sha256": document_sha256(document_of(found))} if accepted.status == "True" else {}


def _uids(seen: Resources) -> list[str]:
    objects = [*seen.policies.values(), *seen.pools.values(), *seen.contracts.values(),
               *seen.promotions.values()]  # fmt: skip
    return [str(one["metadata"].get("uid", "")) for one in objects]
