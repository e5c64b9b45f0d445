"""Webhooks of a promotion on a fake clock: what answers mean, when hooks are called, and with what."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contracts.assess.gate import GateOutcome
from contracts.documents import KernelPromotion
from controller.promotion.records import PromotionStage, PromotionState
from k8s.operator.promotion.calls import Call, HookAnswer, HookCaller
from k8s.operator.promotion.hooks import HookView, Webhooks
from k8s.operator.promotion.outbox import TRIES
from k8s.operator.promotion.records import Attempt, terms_of
from k8s.resources.kinds import GROUP, VERSION, document_of

BEGUN = PromotionState(subject="a" * 64)
CANARY, FULL = PromotionStage.CANARY, PromotionStage.FULL


class Scripted(HookCaller):
    """A caller whose calls the test answers."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Call, Future[HookAnswer]]] = []

    def post(self, call: Call) -> Future[HookAnswer]:
        """Keep the call."""
        self.calls.append((call, Future()))
        return self.calls[-1][1]

    def bodies(self) -> list[dict[str, Any]]:
        """Bodies that were sent."""
        return [json.loads(call.body) for call, _ in self.calls]

    def answer(self, status: int | None, said: str = "") -> None:
        """Answer every pending call."""
        for _, future in self.calls:
            if not future.done():
                future.set_result(HookAnswer(status=status, said=said))


def hook(kind: str, name: str = "", **changes: Any) -> dict[str, Any]:
    """A webhook that is called every two seconds."""
    url = f"https://hooks.example/{name or kind}"
    return {"name": name or kind, "kind": kind, "url": url, "every_s": 2.0, "timeout_s": 1.0, **changes}


def attempt(*hooks: dict[str, Any], state: PromotionState = BEGUN) -> Attempt:
    """A promotion with the given webhooks."""
    evidence = {"uri": "configmap:evidence/evaluation.json", "sha256": "0" * 64}
    spec = {
        "description": "a test",
        "policy": "chat",
        "candidate": "next",
        "offline": {"evaluation": evidence},
        "webhooks": list(hooks),
    }
    found = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "KernelPromotion",
        "metadata": {"name": "next"},
        "spec": spec,
    }
    document = document_of(found)
    assert isinstance(document, KernelPromotion)
    return Attempt(uid="u", document=document, terms=terms_of(document), state=state)


def looked(
    hooks: Webhooks, caller: Scripted, found: Attempt, status: int | None, now_s: float = 0.0
) -> HookView:
    """Look, answer the calls, and look again."""
    hooks.look("next", found, now_s)
    caller.answer(status, "said by a test")
    return hooks.look("next", found, now_s)


@given(st.one_of(st.none(), st.integers(100, 599)))
def test_what_an_answer_to_a_veto_hook_means(status: int | None) -> None:
    """2xx is no objection, 403 and 409 are a veto, and everything else is unknown."""
    caller = Scripted()
    found = attempt(hook("veto"), state=replace(BEGUN, stage=CANARY))
    view = looked(Webhooks(caller, "chat"), caller, found, status)
    assert (view.unopposed == {CANARY}) == (status is not None and 200 <= status < 300)
    assert bool(view.refused) == (status in (403, 409))
    if not view.unopposed:
        assert "veto" in view.held_up_by
        assert str(status or "said by a test") in view.held_up_by


@given(st.one_of(st.none(), st.integers(100, 599)))
def test_what_an_answer_to_a_confirm_hook_means(status: int | None) -> None:
    """Only 2xx confirms, and no answer of a confirm hook is a veto."""
    caller = Scripted()
    found = attempt(hook("confirm"), state=replace(BEGUN, waits_for=CANARY))
    view = looked(Webhooks(caller, "chat"), caller, found, status)
    assert (view.confirmed == {CANARY}) == (status is not None and 200 <= status < 300)
    assert view.refused == ""


def test_hooks_are_called_in_their_stage_only() -> None:
    """A confirm hook is called while its stage is waited for, a veto hook in its stage, else none."""
    caller = Scripted()
    hooks = Webhooks(caller, "chat")
    found = attempt(hook("confirm", stages=["full"]), hook("veto", stages=["shadow"]), hook("event"))
    for stage, waits, asked in (
        (PromotionStage.OFFLINE, PromotionStage.SHADOW, []),
        (PromotionStage.SHADOW, None, ["veto"]),
        (CANARY, None, []),
        (CANARY, FULL, ["confirm"]),
        (PromotionStage.ROLLED_BACK, None, []),
    ):
        caller.calls.clear()
        found.state = replace(BEGUN, stage=stage, waits_for=waits)
        hooks.look("next", found, 0.0)
        assert [body["kind"] for body in caller.bodies()] == asked


def test_an_answer_expires() -> None:
    """While a hook is silent, its last consent expires, and only one call is pending at a time."""
    caller = Scripted()
    hooks, found = Webhooks(caller, "chat"), attempt(hook("veto"), state=replace(BEGUN, stage=CANARY))
    assert looked(hooks, caller, found, 200).unopposed == {CANARY}
    seen = [bool(hooks.look("next", found, float(at_s)).unopposed) for at_s in range(20)]
    assert seen == [True] * 6 + [False] * 14
    assert len(caller.calls) == 2


def test_hooks_are_asked_at_their_pace() -> None:
    """A hook that answers is called every two seconds, and at once after the clock went back."""
    caller = Scripted()
    hooks, found = Webhooks(caller, "chat"), attempt(hook("veto"), state=replace(BEGUN, stage=CANARY))
    for at_s in range(10):
        looked(hooks, caller, found, 200, float(at_s))
    assert len(caller.calls) == 5
    looked(hooks, caller, found, 200, -1000.0)
    assert len(caller.calls) == 6


def test_a_veto_stays() -> None:
    """A hook that vetoed is not called again, and its veto holds while the stage lasts."""
    caller = Scripted()
    hooks, found = Webhooks(caller, "chat"), attempt(hook("veto"), state=replace(BEGUN, stage=CANARY))
    looked(hooks, caller, found, 409)
    assert "HTTP 409: said by a test" in hooks.look("next", found, 1000.0).refused
    assert len(caller.calls) == 1


def test_an_answer_is_of_one_stage_and_one_subject() -> None:
    """Consent for one stage, subject or address does not count for another."""
    caller = Scripted()
    hooks = Webhooks(caller, "chat")
    here = replace(BEGUN, stage=CANARY)
    found = attempt(hook("veto"), state=here)
    assert looked(hooks, caller, found, 200).unopposed
    for state in (replace(here, stage=FULL), here, replace(here, subject="b" * 64)):
        found.state = state
        assert not hooks.look("next", found, 0.0).unopposed
    moved = attempt(hook("veto", url="https://hooks.example/moved"), state=found.state)
    caller.answer(200)
    assert not hooks.look("next", moved, 0.0).unopposed


def test_all_hooks_must_agree() -> None:
    """With two confirm hooks both must agree; the message names the one that does not."""
    caller = Scripted()
    hooks = Webhooks(caller, "chat")
    found = attempt(
        hook("confirm", "one"), hook("confirm", "two"), state=replace(BEGUN, stage=CANARY, waits_for=FULL)
    )
    hooks.look("next", found, 0.0)
    (_, first), (_, second) = caller.calls
    first.set_result(HookAnswer(status=200))
    assert not hooks.look("next", found, 0.0).confirmed
    second.set_result(HookAnswer(status=503, said="closed"))
    view = hooks.look("next", found, 0.0)
    assert view.confirmed == frozenset()
    assert view.held_up_by == "webhook two (confirm): HTTP 503: closed"


def test_a_call_that_fails_unforeseen_is_no_answer() -> None:
    """An unexpected exception of a call counts as unknown, like silence."""
    caller = Scripted()
    hooks, found = Webhooks(caller, "chat"), attempt(hook("veto"), state=replace(BEGUN, stage=CANARY))
    hooks.look("next", found, 0.0)
    caller.calls[0][1].set_exception(RuntimeError("nobody foresaw this"))
    view = hooks.look("next", found, 0.0)
    assert (view.unopposed, view.refused) == (frozenset(), "")


def test_every_change_is_sent_once() -> None:
    """Each change of stage or verdict is sent once and in order; a rollback also to the rollback hook."""
    caller = Scripted()
    hooks, found = Webhooks(caller, "chat"), attempt(hook("event"), hook("rollback"))
    back, failed = PromotionStage.ROLLED_BACK, GateOutcome.FAILED
    rolled = replace(BEGUN, stage=back, verdict=failed, reason="Vetoed")
    for state in (BEGUN, replace(BEGUN, stage=CANARY), rolled):
        found.state = state
        for now_s in (0.0, 1.0):
            hooks.changed("next", found)
            hooks.deliver({"next": found}, now_s)
            caller.answer(200)
        hooks.deliver({"next": found}, 2.0)
        assert found.told == found.queued
    told = [(body["kind"], body["stage"], body["verdict"], body["reason"]) for body in caller.bodies()]
    assert told == [
        ("event", "Offline", None, "AwaitingEvidence"),
        ("event", "Canary", None, "AwaitingEvidence"),
        ("event", "RolledBack", "Failed", "Vetoed"),
        ("rollback", "RolledBack", "Failed", "Vetoed"),
    ]
    assert len({body["id"] for body in caller.bodies()}) == 4


def test_a_change_that_was_sent_is_not_sent_again() -> None:
    """A successor does not send a change that the status records as sent, but sends a newer one."""
    caller = Scripted()
    found = attempt(hook("event"))
    first = Webhooks(caller, "chat")
    first.changed("next", found)
    for told, calls in ((found.queued, 1), ("Shadow/Undecided@" + "a" * 64, 2)):
        successor = attempt(hook("event"))
        successor.queued = successor.told = told
        hooks = Webhooks(caller, "chat")
        first.deliver({}, 0.0)
        hooks.changed("next", successor)
        hooks.deliver({"next": successor}, 0.0)
        assert len(caller.calls) == calls
    assert caller.bodies()[0]["id"] == caller.bodies()[1]["id"]


def test_a_hook_that_never_accepts_an_event_is_given_up() -> None:
    """An event is sent a limited number of times with growing pauses, and delays no other hook."""
    caller = Scripted()
    hooks, found = Webhooks(caller, "chat"), attempt(hook("event", "deaf"), hook("event", "good"))
    hooks.changed("next", found)
    times: list[float] = []
    for at_s in range(2000):
        before = len(caller.calls)
        hooks.deliver({"next": found}, float(at_s))
        for call, future in caller.calls[before:]:
            future.set_result(HookAnswer(status=500 if call.url.endswith("deaf") else 200))
            times += [float(at_s)] if call.url.endswith("deaf") else []
    assert len(caller.calls) == TRIES + 1
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses == [2.0 * 2.0**n for n in range(TRIES - 1)]
    assert found.told == found.queued


def test_without_webhooks_nothing_is_called_or_stored() -> None:
    """A promotion without webhooks makes no call and stores nothing about calls."""
    caller = Scripted()
    hooks, found = Webhooks(caller, "chat"), attempt(state=replace(BEGUN, stage=CANARY))
    hooks.look("next", found, 0.0)
    hooks.changed("next", found)
    hooks.deliver({"next": found}, 0.0)
    assert (caller.calls, found.told, found.queued) == ([], "", "")


def test_a_body_has_the_documented_fields_only() -> None:
    """The body names promotion, candidate, stages and verdict; there is no other field."""
    caller = Scripted()
    hooks, found = Webhooks(caller, "chat"), attempt(hook("veto"), state=replace(BEGUN, stage=CANARY))
    hooks.look("next", found, 0.0)
    (body,) = caller.bodies()
    assert len(body.pop("id")) == 32
    assert body == {
        "webhook": "veto",
        "kind": "veto",
        "namespace": "chat",
        "promotion": "next",
        "policy": "chat",
        "candidate": "next",
        "subject": "a" * 64,
        "stage": "Canary",
        "nextStage": "Full",
        "verdict": None,
        "reason": "AwaitingEvidence",
        "message": "the offline evidence was not read yet",
    }


def test_pending_calls_are_cancelled_on_forget() -> None:
    """Losing the lead, or deleting the promotion, cancels its pending calls."""
    for ends in (lambda hooks: hooks.forget(), lambda hooks: hooks.deliver({}, 0.0)):
        caller = Scripted()
        hooks = Webhooks(caller, "chat")
        hooks.look("next", attempt(hook("veto"), state=replace(BEGUN, stage=CANARY)), 0.0)
        ends(hooks)
        assert caller.calls[0][1].cancelled()
