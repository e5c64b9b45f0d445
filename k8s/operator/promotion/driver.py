"""Runs the promotions of one namespace: restored from their status, stepped after each turn of a policy."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from contracts.assess.gate import GateOutcome
from contracts.compiled.contract import Level
from contracts.errors import StateError
from contracts.loading.oci import OciUri
from controller.promotion.kept import state_of
from controller.promotion.machine import step
from controller.promotion.records import PromotionSight, PromotionStage, PromotionState
from k8s.operator.admission import Documents, PolicyAdmission
from k8s.operator.objects import Cluster, Manifest, Resources
from k8s.operator.promotion.admission import PromotionAdmission, judge_promotion
from k8s.operator.promotion.calls import HookCaller
from k8s.operator.promotion.evidence import offline_result
from k8s.operator.promotion.hooks import Webhooks
from k8s.operator.promotion.records import Attempt, approvals, change_of, subject_of, terms_of
from k8s.operator.promotion.report import change_key, promotion_body, promotion_conditions
from k8s.operator.promotion.stages import with_promotions
from k8s.operator.route_loop import RouteLoop
from k8s.operator.status.log_fields import fields
from k8s.operator.status.publisher import Publication, Publisher

_LOG = logging.getLogger(__name__)
#: Interval until evidence that could not be read is read again.
READ_AGAIN_S = 30.0


@dataclass(slots=True)
class _Policy:
    """What is known of one policy's promotions."""

    documents: Documents | None
    names: list[str]


class Promotions:
    """Every promotion of one namespace; only the leader calls it."""

    def __init__(
        self,
        cluster: Cluster,
        caller: HookCaller | None = None,
        missing: Callable[[OciUri], None] = lambda _: None,
    ) -> None:
        """missing: called with each artefact that must be fetched first."""
        self._cluster, self._missing = cluster, missing
        self._webhooks = Webhooks(caller or HookCaller(), cluster.namespace)
        self.attempts: dict[str, Attempt] = {}
        self._judged: dict[str, PromotionAdmission] = {}
        self._policies: dict[str, _Policy] = {}

    def forget(self) -> None:
        """Forget everything, because another operator leads; the status keeps each promotion's state."""
        self.attempts.clear()
        self._judged.clear()
        self._policies.clear()
        self._webhooks.forget()

    def admit(self, policy: str, verdict: PolicyAdmission, seen: Resources) -> PolicyAdmission:
        """``verdict`` with documents changed by the policy's promotions."""
        names = _of_policy(policy, seen)
        before = self._policies.get(policy)
        last = None if before is None else before.documents
        self._policies[policy] = _Policy(verdict.documents or last, names)
        taken: set[str] = set()
        for name in names:
            judged = judge_promotion(seen.promotions[name], verdict.documents, taken, self._webhooks.origins)
            self._judged[name] = judged
            if judged.document is not None and verdict.documents is not None:
                self._take(name, seen.promotions[name], judged, verdict.documents)
            if name in self.attempts:
                taken.add(self.attempts[name].candidate)
        if verdict.documents is None:
            return verdict
        there = {kernel.name for kernel in verdict.documents.pool.spec.kernels}
        attempts = [self.attempts[name] for name in names if name in self.attempts]
        attempts = [one for one in attempts if one.candidate in there]
        documents = with_promotions(verdict.documents, attempts)
        return verdict if documents is verdict.documents else replace(verdict, documents=documents)

    def turned(self, policy: str, loop: RouteLoop) -> None:
        """Step every promotion of ``policy`` after a turn of its ``loop``."""
        known = self._policies.get(policy)
        for name in [] if known is None else known.names:
            attempt = self.attempts.get(name)
            if attempt is None or known is None or known.documents is None:
                continue
            before = attempt.state
            self._read(attempt, known.documents, loop)
            attempt.state = step(before, self._sight(name, attempt, loop), attempt.terms)
            self._webhooks.changed(name, attempt)
            if loop.journal is not None and (change := change_of(name, attempt, before)):
                loop.journal.promoted(change)
            if attempt.state.stage is not before.stage:
                about = fields(promotion=name, policy=policy, stage=str(attempt.state.stage))
                _LOG.info(
                    "promotion %s: %s to %s: %s",
                    name,
                    before.stage,
                    attempt.state.stage,
                    attempt.state.message,
                    extra=about,
                )

    def say(self, publisher: Publisher, seen: Resources, now_s: float) -> None:
        """Status and events of every promotion."""
        for name in self.attempts.keys() - seen.promotions.keys():
            del self.attempts[name]
        self._judged = {name: one for name, one in self._judged.items() if name in seen.promotions}
        self._policies = {name: one for name, one in self._policies.items() if name in seen.policies}
        self._webhooks.deliver(self.attempts, now_s)
        for name, found in seen.promotions.items():
            judged = self._judged.get(name)
            routed = _policy_of(found)
            if judged is None or routed not in seen.policies:
                judged = self._judged[name] = judge_promotion(found, None, ())
            attempt, policy = self.attempts.get(name), self._policies.get(routed)
            body = {} if attempt is None else promotion_body(attempt, policy.documents if policy else None)
            said = Publication(
                about=found,
                conditions=promotion_conditions(judged, attempt),
                body=body,
                key=None if attempt is None else change_key(attempt),
            )
            publisher.say(said, now_s)

    def _take(self, name: str, found: Manifest, judged: PromotionAdmission, documents: Documents) -> None:
        """Start the promotion, or continue it if its subject has not changed."""
        assert judged.document is not None
        document, subject = judged.document, subject_of(judged.document, documents)
        attempt, uid = self.attempts.get(name), str(found["metadata"].get("uid", ""))
        if attempt is None or (attempt.uid, attempt.state.subject) != (uid, subject):
            state = _stored_state(found, subject)
            told = _last_reported(found) if attempt is None or attempt.uid != uid else attempt.told
            attempt = Attempt(
                uid=uid, document=document, terms=terms_of(document), state=state, queued=told, told=told
            )
            self.attempts[name] = attempt
        attempt.document, attempt.terms = document, terms_of(document)
        attempt.approved = approvals(found["metadata"].get("annotations") or {}, subject)

    def _read(self, attempt: Attempt, documents: Documents, loop: RouteLoop) -> None:
        """Read the offline evidence once, and again if that failed."""
        if attempt.state.stage is not PromotionStage.OFFLINE or loop.standing.turn is None:
            return
        now_s, result = loop.standing.turn.at_s, attempt.offline
        failed = result is not None and result.outcome is GateOutcome.ERROR
        if result is None or (failed and now_s - attempt.read_at_s >= READ_AGAIN_S):
            attempt.offline = offline_result(self._cluster, attempt.document, documents, self._missing)
            attempt.read_at_s = now_s

    def _sight(self, name: str, attempt: Attempt, loop: RouteLoop) -> PromotionSight:
        turn, standing = loop.standing.turn, loop.standing
        assert turn is not None  # a loop that turned
        view = self._webhooks.look(name, attempt, turn.at_s)
        asked = PromotionSight(
            now_s=turn.at_s,
            carried=loop.enforces and loop.in_force and not standing.frozen,
            seen=False,
            offline=attempt.offline,
            approved=attempt.approved,
            confirmed=view.confirmed,
            unopposed=view.unopposed,
            refused=view.refused,
            held_up_by=view.held_up_by,
            withdrawn=bool(attempt.document.spec.rollback),
        )
        decision, telemetry, layout = turn.decision, turn.telemetry, loop.setup.layout
        if decision is None or telemetry is None or attempt.candidate not in layout.kernels:
            return asked
        k, judgement = layout.kernels.index(attempt.candidate), decision.judgement
        silent = bool(decision.held[0]) or bool(decision.degraded[0])
        own = layout.replica_kernel == k
        probes = telemetry.probes
        mine = np.asarray(probes.valid[0] & own[probes.replica[0]])
        counts = np.bincount(probes.slice[0][mine], minlength=len(layout.slices))
        return replace(
            asked,
            seen=not silent and int(decision.observation.ready[0, k]) > 0,
            level=Level(int(judgement.level[0, k].max())),
            hard_violated=bool(judgement.hard_violated[0, k].any()),
            certified=bool(judgement.certified[0, k].all()),
            probes=tuple(int(one) for one in counts),
            answers=int(telemetry.answered[0][own].sum()),
        )


def _of_policy(policy: str, seen: Resources) -> list[str]:
    """Promotions of ``policy``, oldest first."""
    found = [
        (one["metadata"].get("creationTimestamp", ""), name)
        for name, one in seen.promotions.items()
        if _policy_of(one) == policy
    ]
    return [name for _, name in sorted(found)]


def _policy_of(found: Manifest) -> str:
    """The policy that a promotion names; "" if a promotion stored before today's rules names none."""
    return str((found.get("spec") or {}).get("policy") or "")


def _stored_state(found: Manifest, subject: str) -> PromotionState:
    """The state in the promotion's status, if it is about ``subject``; otherwise the initial state.

    If the status has another version's format, only one fact is used: a candidate that was rolled back stays
    out, because otherwise it would get traffic again.
    """
    status = found.get("status") or {}
    try:
        state = state_of(status)
    except StateError as error:
        if status.get("stage") is None:
            return PromotionState(subject=subject)
        name = found["metadata"]["name"]
        _LOG.warning("promotion %s: its status cannot be read: %s", name, error, extra=fields(promotion=name))
        out = (status["stage"], status.get("subject")) == (str(PromotionStage.ROLLED_BACK), subject)
        return _unread(subject, str(error)) if out else PromotionState(subject=subject)
    return state if state.subject == subject else PromotionState(subject=subject)


def _unread(subject: str, told: str) -> PromotionState:
    """State of a promotion that was rolled back for a reason that cannot be read."""
    return PromotionState(
        subject=subject,
        stage=PromotionStage.ROLLED_BACK,
        verdict=GateOutcome.ERROR,
        reason="StatusUnread",
        message=f"it was rolled back, and its status cannot be read: {told}; raise spec.attempt to try again",
    )


def _last_reported(found: Manifest) -> str:
    """The last change that webhooks were told of, from the status."""
    told = (found.get("status") or {}).get("told")
    return told if isinstance(told, str) else ""
