"""Webhooks of promotions: which are called, and what their last answers mean. Nothing here waits.

An answer belongs to one promotion, subject, stage and hook, and is forgotten when any of them changes. It
expires after two intervals of the hook plus the call's timeout. A veto does not expire.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from contracts.documents.promotion import Webhook
from contracts.loading.files import canonical_sha256
from controller.promotion.records import NEXT_STAGE, PromotionStage, PromotionState
from k8s.operator.promotion.calls import Call, HookAnswer, HookCaller, answer_of
from k8s.operator.promotion.outbox import Outbox
from k8s.operator.promotion.records import Attempt, stages_of

_VETO = (403, 409)
_MESSAGE = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class HookView:
    """Current answers of webhooks for one promotion, as fields of ``PromotionSight``."""

    confirmed: frozenset[PromotionStage]
    unopposed: frozenset[PromotionStage]
    refused: str
    held_up_by: str


@dataclass(slots=True)
class _Question:
    """One hook's repeated question about one stage."""

    hook: Webhook
    pending: Future[HookAnswer] | None = None
    asked_at_s: float = float("-inf")
    answer: HookAnswer | None = None
    answered_at_s: float = float("-inf")

    @property
    def vetoed(self) -> bool:
        return self.hook.kind == "veto" and self.answer is not None and self.answer.status in _VETO

    def read(self, now_s: float) -> None:
        if self.pending is not None and self.pending.done():
            self.answer, self.answered_at_s, self.pending = answer_of(self.pending), now_s, None

    def due(self, now_s: float) -> bool:
        resting = 0.0 <= now_s - self.asked_at_s < self.hook.every_s
        return self.pending is None and not (self.vetoed or resting)

    def fresh(self, now_s: float) -> bool:
        most_s = 2.0 * self.hook.every_s + self.hook.timeout_s
        return self.answer is not None and 0.0 <= now_s - self.answered_at_s <= most_s

    def agreed(self, now_s: float) -> bool:
        return self.answer is not None and self.answer.agrees and self.fresh(now_s)

    def describe(self, now_s: float) -> str:
        if self.answer is None:
            said = "not answered yet"
        else:
            said = str(self.answer) if self.fresh(now_s) else "its last answer is too old"
        return f"webhook {self.hook.name} ({self.hook.kind}): {said}"


class Webhooks:
    """Webhooks of all promotions of one namespace. Only the leader's loop thread calls this class."""

    def __init__(self, caller: HookCaller, namespace: str) -> None:
        self._caller, self._namespace = caller, namespace
        self._outbox = Outbox(caller)
        self._questions: dict[str, dict[str, _Question]] = {}

    @property
    def origins(self) -> frozenset[str]:
        """Origins that may be called."""
        return self._caller.origins

    def look(self, name: str, attempt: Attempt, now_s: float) -> HookView:
        """Read new answers, send due questions, and return the current view."""
        before, questions = self._questions.get(name, {}), {}
        for hook in attempt.document.spec.webhooks:
            about = _about(hook, attempt.state)
            if about is not None:
                key = canonical_sha256([attempt.uid, attempt.state.subject, hook.kind, hook.url, about])
                question = questions[f"{hook.name}/{key}"] = before.get(f"{hook.name}/{key}", _Question(hook))
                question.hook = hook
        _end(one for key, one in before.items() if key not in questions)
        self._questions[name] = questions
        for key, question in questions.items():
            question.read(now_s)
            if question.due(now_s):
                question.asked_at_s = now_s
                question.pending = self._ask(name, attempt, question.hook, key)
        return _view(attempt.state, list(questions.values()), now_s)

    def changed(self, name: str, attempt: Attempt) -> None:
        """Queue messages for event and rollback hooks if stage or verdict changed since the last message."""
        state = attempt.state
        hooks = [one for one in attempt.document.spec.webhooks if one.kind in ("event", "rollback")]
        change = f"{state.stage}/{state.verdict or 'Undecided'}@{state.subject}"
        if not hooks or attempt.queued == change:
            return
        attempt.queued = change
        for hook in hooks:
            if hook.kind == "event" or state.stage is PromotionStage.ROLLED_BACK:
                self._outbox.put(name, hook, self._body(name, attempt, hook, change))

    def deliver(self, attempts: Mapping[str, Attempt], now_s: float) -> None:
        """Deliver queued messages and record in ``attempts`` what was told. Questions of deleted promotions
        are dropped.
        """
        self._outbox.step(now_s)
        for name, attempt in attempts.items():
            if self._outbox.delivered(name):
                attempt.told = attempt.queued
        for name in self._questions.keys() - attempts.keys():
            _end(self._questions.pop(name).values())

    def forget(self) -> None:
        """Cancel everything, because another operator leads."""
        for questions in self._questions.values():
            _end(questions.values())
        self._questions.clear()
        self._outbox.forget()

    def _ask(self, name: str, attempt: Attempt, hook: Webhook, key: str) -> Future[HookAnswer]:
        body = self._body(name, attempt, hook, key)
        return self._caller.post(Call(url=hook.url, body=body, timeout_s=hook.timeout_s))

    def _body(self, name: str, attempt: Attempt, hook: Webhook, about: str) -> bytes:
        """JSON body of a question or message. Repeats have the same id, so that receivers can detect them."""
        spec, state = attempt.document.spec, attempt.state
        found: dict[str, Any] = {
            "id": canonical_sha256([attempt.uid, hook.name, about])[:32],
            "webhook": hook.name,
            "kind": hook.kind,
            "namespace": self._namespace,
            "promotion": name,
            "policy": spec.policy,
            "candidate": spec.candidate,
            "subject": state.subject,
            "stage": state.stage,
            "nextStage": NEXT_STAGE.get(state.stage),
            "verdict": state.verdict,
            "reason": state.reason,
            "message": state.message[:_MESSAGE],
        }
        return json.dumps(found).encode()


def _about(hook: Webhook, state: PromotionState) -> PromotionStage | None:
    """The stage about which ``hook`` is asked now; None: it is not asked."""
    stage = {"confirm": state.waits_for, "veto": state.stage}.get(hook.kind)
    return stage if stage in stages_of(hook) else None


def _view(state: PromotionState, questions: list[_Question], now_s: float) -> HookView:
    agreed = {
        kind: all(one.agreed(now_s) for one in questions if one.hook.kind == kind)
        for kind in ("confirm", "veto")
    }
    waits = frozenset() if state.waits_for is None else frozenset({state.waits_for})
    vetoes = [one.describe(one.answered_at_s) for one in questions if one.vetoed]
    held_up_by = [one.describe(now_s) for one in questions if not one.agreed(now_s)]
    return HookView(
        confirmed=waits if agreed["confirm"] else frozenset(),
        unopposed=frozenset({state.stage}) if agreed["veto"] else frozenset(),
        refused=vetoes[0] if vetoes else "",
        held_up_by="; ".join(held_up_by),
    )


def _end(questions: Iterable[_Question]) -> None:
    """Cancel questions whose answers are not needed any more."""
    for one in questions:
        if one.pending is not None:
            one.pending.cancel()
