"""Promotions with webhooks on a real API server and a real HTTP server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from k8s.operator.promotion.calls import HookCaller
from live.origins import origin_of
from tests.support.cluster.cluster_worlds import Bench, Object
from tests.support.cluster.promotions import CANDIDATE, everything, evidence, promote, status, until
from tests.support.servers.hook_server import HookServer, hook_server

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow]

OWN = f"chat-{CANDIDATE}"


@pytest.fixture
def server() -> Iterator[HookServer]:
    """A webhook server."""
    with hook_server() as found:
        yield found


@pytest.fixture
def caller(server: HookServer) -> Iterator[HookCaller]:
    """A caller that may call only that server."""
    with HookCaller([server.url]) as found:
        yield found


def hook(server: HookServer, kind: str, **changes: object) -> Object:
    """A webhook on ``server``; its path is its kind."""
    url = f"{server.url}/{kind}"
    return {"name": kind, "kind": kind, "url": url, "every_s": 2.0, "timeout_s": 30.0, **changes}


def told(server: HookServer) -> list[tuple[str, str | None]]:
    """Stages and verdicts that were sent to the event hook, each once."""
    return list(dict.fromkeys((one["stage"], one["verdict"]) for one in server.at("/event")))


def test_a_stage_waits_until_it_is_confirmed(bench: Bench, server: HookServer, caller: HookCaller) -> None:
    """A stage waits for a confirmation and names the hook; once confirmed it starts; events are in order."""
    everything(bench)
    server.statuses["/confirm"], server.bodies["/confirm"] = 503, b"the window is closed"
    hooks = [hook(server, "confirm", stages=["canary"]), hook(server, "veto"), hook(server, "event")]
    promote(bench, evidence(bench), webhooks=[*hooks, hook(server, "rollback")])
    operator = bench.operator(caller=caller)
    until(bench, operator, "Shadow")
    for _ in range(40):
        bench.turns(operator, 1)
        if "the window is closed" in operator.promotions.attempts[CANDIDATE].state.message:
            break
    assert operator.promotions.attempts[CANDIDATE].state.stage == "Shadow"
    bench.turns(operator, 2)
    assert bench.conditions("KernelPromotion", CANDIDATE)["Progressing"] == ("False", "AwaitingConfirmation")
    assert "webhook confirm (confirm): HTTP 503: the window is closed" in status(bench)["message"]
    assert bench.weights("prose")[OWN] == 0
    del server.statuses["/confirm"]
    until(bench, operator, "Canary")
    until(bench, operator, "Full")
    bench.turns(operator, 10)
    assert told(server) == [("Shadow", None), ("Canary", None), ("Full", "Successful")]
    assert server.at("/rollback") == []
    assert {one["nextStage"] for one in server.at("/confirm")} == {"Canary"}
    assert {one["stage"] for one in server.at("/veto")} == {"Shadow", "Canary", "Full"}


@pytest.mark.parametrize(("stage", "answer"), [("Shadow", 403), ("Canary", 409), ("Full", 403)])
def test_a_veto_rolls_back(
    bench: Bench, server: HookServer, caller: HookCaller, stage: str, answer: int
) -> None:
    """A veto rolls the candidate back from any stage, names the hook, and calls the rollback hook."""
    everything(bench)
    promote(bench, evidence(bench), webhooks=[hook(server, "veto"), hook(server, "rollback")])
    operator = bench.operator(caller=caller)
    until(bench, operator, stage)
    server.statuses["/veto"], server.bodies["/veto"] = answer, b"an evaluation failed"
    until(bench, operator, "RolledBack")
    bench.turns(operator, 10)
    assert bench.conditions("KernelPromotion", CANDIDATE)["Degraded"] == ("True", "Vetoed")
    assert f"webhook veto (veto): HTTP {answer}: an evaluation failed" in status(bench)["message"]
    assert bench.weights("prose")[OWN] == 0
    (body,) = server.at("/rollback")
    assert (body["stage"], body["verdict"], body["reason"]) == ("RolledBack", "Failed", "Vetoed")


def test_an_unknown_veto_holds_the_candidate(bench: Bench, server: HookServer, caller: HookCaller) -> None:
    """While a veto hook fails, the stage is held even past its deadline; an answer lets it continue."""
    everything(bench)
    server.statuses["/veto"] = 500
    promote(bench, evidence(bench), webhooks=[hook(server, "veto", stages=["shadow"])])
    operator = bench.operator(caller=caller)
    until(bench, operator, "Shadow")
    bench.turns(operator, 80)
    state = operator.promotions.attempts[CANDIDATE].state
    assert (state.stage, state.reason, state.verdict) == ("Shadow", "VetoUnknown", None)
    del server.statuses["/veto"]
    until(bench, operator, "Canary")


def test_a_hook_that_was_not_allowed_is_never_called(bench: Bench, server: HookServer) -> None:
    """A promotion whose hook is not allowed is not in force; its condition names the option."""
    everything(bench)
    promote(bench, evidence(bench), webhooks=[hook(server, "event"), hook(server, "veto")])
    with HookCaller(["https://hooks.example:8443"]) as caller:
        operator = bench.operator(caller=caller)
        bench.turns(operator, 6)
    found = status(bench)["conditions"]
    resolved = next(one for one in found if one["type"] == "ResolvedRefs")
    assert (resolved["status"], resolved["reason"]) == ("False", "WebhookNotAllowed")
    assert f"--webhook-origin {origin_of(server.url)}" in resolved["message"]
    assert operator.promotions.attempts == {}
    assert server.came == []


def test_a_new_leader_and_another_address_change_no_stage(
    bench: Bench, server: HookServer, caller: HookCaller
) -> None:
    """A successor does not repeat events, and a changed hook URL does not restart the promotion."""
    everything(bench)
    promote(bench, evidence(bench), webhooks=[hook(server, "event")])
    operator = bench.operator(caller=caller)
    until(bench, operator, "Canary")
    for _ in range(40):
        bench.turns(operator, 1)
        if status(bench).get("told", "").startswith("Canary/"):
            break
    before = server.at("/event")
    operator.forget()
    moved = [hook(server, "event", url=f"{server.url}/moved"), hook(server, "confirm")]
    bench.change("KernelPromotion", CANDIDATE, {"webhooks": moved})
    successor = bench.operator(caller=caller)
    bench.turns(successor, 2)
    assert successor.promotions.attempts[CANDIDATE].state.stage == "Canary"
    assert server.at("/event") == before
    until(bench, successor, "Full")
    bench.turns(successor, 10)
    assert [one["stage"] for one in server.at("/moved")] == ["Full"]
