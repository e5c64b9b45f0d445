"""The operator of one namespace. It is level-based: every turn acts on the current objects, not on events.

An exception in one policy does not stop the others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from contracts.documents import KernelContract, KernelPool, RoutePolicy
from contracts.errors import DocumentError
from contracts.loading.oci import MissingArtefactError
from contracts.units import MS_PER_S
from k8s.operator.admission import Documents, ObjectReader, PolicyAdmission, PolicyJudge, judge_document
from k8s.operator.advice import Advisor
from k8s.operator.artefacts import Artefacts
from k8s.operator.fleet import fingerprint, reason_of, with_freeze, with_note, with_problem
from k8s.operator.kept_policies import KeptPolicies
from k8s.operator.objects import ClusterError, Manifest, Resources
from k8s.operator.promotion.calls import HookCaller
from k8s.operator.promotion.driver import Promotions
from k8s.operator.report import policy_conditions, pool_conditions
from k8s.operator.route_loop import LoopParts, RouteLoop
from k8s.operator.status.failed import TurnFailures, failed_publication
from k8s.operator.status.log_fields import fields
from k8s.operator.status.outcomes import Tally
from k8s.operator.status.publisher import Publication, Publisher
from k8s.operator.summary import policy_body, pool_body
from live.control.loop import Begun, Turn
from live.control.turns import BatchedTurns, Decided

_LOG = logging.getLogger(__name__)

#: Interval at which resources are listed again, independent of watches.
RESYNC_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """A policy after the first part of a turn. turn None: its tick is not due, or it has no loop."""

    found: Manifest
    verdict: PolicyAdmission
    suspended: bool
    turn: Begun | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """Documents that cannot be put in force. wanted: their fingerprint."""

    wanted: str
    told: str
    reason: str


class NamespaceOperator:
    """Runs every RoutePolicy of one namespace; only the leader calls ``turn``. caller: calls the webhooks of
    promotions; None: webhooks are not allowed.
    """

    def __init__(self, parts: LoopParts, *, advises: bool = False, caller: HookCaller | None = None) -> None:
        self.parts = parts
        self.advisor = Advisor(parts.cluster) if advises else None
        self.publisher = Publisher(parts.cluster)
        self.loops: dict[str, RouteLoop] = {}
        self.tallies: dict[str, Tally] = {}
        self.artefacts = Artefacts(parts.registries)
        self.promotions = Promotions(parts.cluster, caller, self.artefacts.want)
        self.problem = ""
        """Error of the last list request, "" if it succeeded."""
        self.failures = TurnFailures()
        self._seen: Resources | None = None
        self._listed_at_s = float("-inf")
        self._nudged = threading.Event()
        self._refused: dict[str, _Refused] = {}
        self._judge = PolicyJudge(parts.cluster.namespace)
        self._batches = BatchedTurns()
        self._kept = KeptPolicies(parts, self.artefacts.want)
        self.together = 0
        """Number of policies that decided in a batch with others at the last turn."""
        self._current: dict[str, Documents] = {}
        """Policy -> documents that are known to be in force in its loop."""

    def nudge(self) -> None:
        """List resources at the next turn because something changed. May be called from any thread."""
        self._nudged.set()

    @property
    def failed(self) -> bool:
        """Whether the last turn failed for the API server, a status or a policy."""
        return bool(self.problem or self.publisher.problem or self.failures.now or self.failures.others)

    def forget(self) -> None:
        """Drop all loops and caches, because another operator leads or this process ends."""
        for name in list(self.loops):
            self._drop(name)
        self.promotions.forget()
        if self.advisor is not None:
            self.advisor.forget()
        self._batches.forget()
        self._refused.clear()
        self._seen = None

    def turn(self) -> None:
        """Run one tick of every policy. Failures of the API server or of a policy raise nothing."""
        now_s = self.parts.clock.now_ms() / MS_PER_S
        self.artefacts.turn(now_s)
        self._list(now_s)
        if self._seen is None:
            return
        seen = self._seen
        begun: dict[str, _Begun] = {}
        self.failures.begin()
        for name in sorted(seen.policies):
            if not self.parts.leads():
                return
            with self.failures.guarded(name):
                begun[name] = self._begin(name, seen)
        decided = self._decided(begun)
        for name, one in begun.items():
            if not self.parts.leads():
                return
            with self.failures.guarded(name):
                self._finish(name, one, decided.get(name), now_s)
        for name, told in self.failures.now.items():
            self.tallies.setdefault(name, Tally()).failed()
            self.publisher.say(failed_publication(seen.policies[name], told), now_s)
        self._documents(seen, now_s)

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
        there = self._seen.policies.keys()
        known = (self.loops, self.tallies, self._refused)
        for name in set().union(*known) - there:
            self._drop(name)  # its route stays as it is
            self._forget(name)

    def _begin(self, name: str, seen: Resources) -> _Begun:
        """Judge a policy, and read its telemetry if its tick is due."""
        found = seen.policies[name]
        verdict = self._judge.policy(name, seen)
        verdict = self._in_force(name, self.promotions.admit(name, verdict, seen))
        loop = self.loops.get(name)
        suspended = bool(found["spec"].get("suspend"))
        due = loop is not None and not suspended and loop.due()
        return _Begun(
            found=found,
            verdict=verdict,
            suspended=suspended,
            turn=loop.begin() if due and loop is not None else None,
        )

    def _decided(self, begun: Mapping[str, _Begun]) -> dict[str, Decided]:
        """Decisions of policies with equal setups, made in batches; the others decide alone."""
        asked = {
            name: self.loops[name].asked(one.turn) for name, one in begun.items() if one.turn is not None
        }
        found = self._batches.decide({name: one for name, one in asked.items() if one is not None})
        self.together = len(found)
        return found

    def _finish(self, name: str, begun: _Begun, decided: Decided | None, now_s: float) -> None:
        """Decide and apply if telemetry was read; then write the policy's status."""
        loop, verdict = self.loops.get(name), begun.verdict
        if loop is not None and begun.suspended:
            loop.leave_batch()
        if loop is not None and begun.turn is not None:
            loop.recent.go_on(begun.found.get("status") or {})
            policy, _ = self._judge.reader.read(begun.found, RoutePolicy)
            documents = verdict.documents or with_freeze(loop.documents, policy)
            standing = loop.finish(documents, begun.turn, decided)
            if standing.turn is not None:
                self._counted(name, loop, standing.turn)
            self.promotions.turned(name, loop)
            if self.advisor is not None:
                self.advisor.turned(loop)
            if problem := loop.keep(begun.found):
                _LOG.warning("policy %s: %s", name, problem, extra=fields(policy=name))
        body = {} if begun.suspended else policy_body(loop)
        conditions = policy_conditions(verdict, loop, begun.suspended)
        self.publisher.say(Publication(about=begun.found, conditions=conditions, body=body, key=body), now_s)

    def _counted(self, name: str, loop: RouteLoop, turn: Turn) -> None:
        """Count a turn, and pass its verdicts to ``evaluations`` if that is set."""
        self.tallies.setdefault(name, Tally()).turned(turn)
        if self.parts.evaluations is not None:
            self.parts.evaluations.turned(name, loop.setup, turn)

    def _in_force(self, name: str, verdict: PolicyAdmission) -> PolicyAdmission:
        """Put the documents of ``verdict`` in force; returns the verdict, with the problem if that failed."""
        documents, loop = verdict.documents, self.loops.get(name)
        if documents is None:
            taken = verdict.accepted.reason == "RouteTaken"
            return verdict if taken or loop is not None else self._last_good(name, verdict)
        if self._current.get(name) is documents:
            return verdict
        wanted = fingerprint(documents)
        if loop is not None and fingerprint(loop.documents) == wanted:
            self._current[name] = documents
            return verdict
        refused = self._refused.get(name)
        if refused is not None and refused.wanted == wanted:
            return with_problem(verdict, refused.told, refused.reason)
        if told := self.artefacts.held(name, wanted):
            return with_problem(verdict, told, "ArtefactNotFetched")
        return self._replaced(name, verdict, documents, wanted)

    def _replaced(
        self, name: str, verdict: PolicyAdmission, documents: Documents, wanted: str
    ) -> PolicyAdmission:
        """Replace the policy's loop by one for ``documents``, whose fingerprint is ``wanted``."""
        try:
            fresh = RouteLoop(documents, self.parts, self._kept.snapshot(name, self.loops.get(name)))
        except ClusterError as error:
            told = f"nothing begins before it is known what was in force: {error}"
            return with_problem(verdict, told, "StateUnread")
        except MissingArtefactError as error:
            reason, told = "ArtefactNotFetched", self.artefacts.hold(name, wanted, error.uri)
        except (DocumentError, ValueError) as error:
            told, reason = str(error), reason_of(error)
            self._refused[name] = _Refused(wanted=wanted, told=told, reason=reason)
        else:
            changed = name in self.loops
            self._drop(name)
            self.loops[name] = fresh
            self._refused.pop(name, None)
            about = fields(policy=name, route=documents.policy.spec.route.name)
            _LOG.info("policy %s: its documents are in force", name, extra=about)
            if anew := fresh.standing.state_problem:
                _LOG.warning("policy %s: its controller begins anew: %s", name, anew, extra=about)
            if changed:  # expected after a change of documents, so it is not reported
                fresh.standing.state_problem = ""
            return verdict
        refused_verdict = with_problem(verdict, told, reason)
        return refused_verdict if name in self.loops else self._last_good(name, refused_verdict)

    def _last_good(self, name: str, verdict: PolicyAdmission) -> PolicyAdmission:
        """Continue with the documents that an earlier leader stored, because the current ones are invalid.
        Returns ``verdict`` with a note if the stored ones cannot be used either.
        """
        loop = self._kept.last_good(name)
        if loop is not None:
            self.loops[name] = loop
        return with_note(verdict, self._kept.problem(name))

    def _forget(self, name: str) -> None:
        """Forget the deleted policy ``name``, so that a new one of that name starts without its history."""
        self.tallies.pop(name, None)
        self._refused.pop(name, None)
        if self.parts.evaluations is not None:
            self.parts.evaluations.drop(name)
        if self.advisor is not None:
            self.advisor.drop(name)

    def _drop(self, name: str) -> None:
        self._current.pop(name, None)
        self._kept.forget(name)
        loop = self.loops.pop(name, None)
        if loop is not None:
            loop.close()

    def _documents(self, seen: Resources, now_s: float) -> None:
        """Write the status of pools, contracts and promotions."""
        reader = self._judge.reader
        routed = {loop.documents.pool.metadata.name: loop for loop in self.loops.values()}
        for name, found in seen.pools.items():
            with self.failures.told(f"pool {name}"):
                said = _pool_publication(found, routed.get(name), reader)
                self.publisher.say(said, now_s)
        for name, found in seen.contracts.items():
            with self.failures.told(f"contract {name}"):
                accepted = judge_document(found, KernelContract, reader)
                body = {"sha256": reader.sha256(found)} if accepted.status == "True" else {}
                said = Publication(about=found, conditions=(accepted,), body=body, key=body)
                self.publisher.say(said, now_s)
        with self.failures.told("promotions"):
            self.promotions.say(self.publisher, seen, now_s)
        self.publisher.forget(seen.uids)


def _pool_publication(found: Manifest, loop: RouteLoop | None, reader: ObjectReader) -> Publication:
    """Status of a pool. loop: of the policy that routes it."""
    accepted = judge_document(found, KernelPool, reader)
    body = {} if loop is None else pool_body(loop)
    rows = [[row["name"], row["ready"], row["clause"]] for row in body.get("kernels", [])]
    conditions = pool_conditions(accepted, loop)
    return Publication(about=found, conditions=conditions, body=body, key=[rows, body.get("weights")])
