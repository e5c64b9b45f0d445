"""Break-glass by hand: durations and rows as typed, and their effect on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from kubernetes import client
from typer.testing import CliRunner

from contracts.errors import DocumentError
from k8s.api.break_glass import PolicyName
from k8s.operator.objects import ClusterError
from k8s.process import commands
from k8s.process.commands import freeze, freeze_until, pinned_rows, unfreeze
from scripts.cli.main import app
from tests.support.cluster.cluster_worlds import Bench

pytestmark = pytest.mark.waits

NOON = datetime(2030, 1, 31, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("typed", "until"),
    [("2h", "2030-01-31T14:00:00Z"), ("1h30m", "2030-01-31T13:30:00Z"), ("7d", "2030-02-07T12:00:00Z")],
)
def test_a_freeze_ends_by_itself(typed: str, until: str) -> None:
    """A duration becomes the instant at which the freeze ends."""
    assert freeze_until(typed, NOON) == until


@pytest.mark.parametrize("typed", ["", "2", "h", "0s", "8d", "-1h", "two hours"])
def test_a_freeze_without_an_end_is_refused(typed: str) -> None:
    """Anything but a duration up to a week is refused."""
    with pytest.raises(DocumentError, match="a duration up to 7d"):
        freeze_until(typed, NOON)


def test_rows_are_slices_with_kernels() -> None:
    """A kernel alone gets the whole slice, several get their shares."""
    assert pinned_rows(["prose=bf16", "numbers=bf16:0.8,fp8:0.2"]) == [
        {"slice": "prose", "weights": [{"kernel": "bf16", "weight": 1.0}]},
        {
            "slice": "numbers",
            "weights": [{"kernel": "bf16", "weight": 0.8}, {"kernel": "fp8", "weight": 0.2}],
        },
    ]


@pytest.mark.parametrize("typed", ["prose", "=bf16", "prose=", "prose=bf16:much", "prose=bf16,"])
def test_malformed_rows_are_refused(typed: str) -> None:
    """A row without a slice, a kernel or a number is refused."""
    with pytest.raises(DocumentError, match="SLICE=KERNEL"):
        pinned_rows([typed])


@pytest.mark.parametrize("command", ["freeze", "pin", "unfreeze", "unpin"])
def test_the_commands_explain_themselves(command: str) -> None:
    """Every break-glass command has a help text."""
    found = CliRunner().invoke(app, [command, "--help"])
    assert found.exit_code == 0


@pytest.fixture
def chat(api: client.ApiClient, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The sample in force, and a command line that uses its API server."""

    @contextmanager
    def reached() -> Iterator[client.ApiClient]:
        yield api

    monkeypatch.setattr(commands, "cluster_client", reached)
    bench = Bench(api=api, namespace=namespace, now_s=datetime.now(UTC).timestamp())
    bench.everything()
    return bench


@pytest.mark.needs("kube_api")
@pytest.mark.slow
def test_a_frozen_route_stays_and_hard_clauses_warn(chat: Bench) -> None:
    """A freeze holds the weights during a fault, with a warning; after it the policy drives again."""
    policy = PolicyName(namespace=chat.namespace, name="chat")
    operator = chat.operator()
    chat.turns(operator, 16)
    assert "frozen until" in freeze(policy, "2h", "the night shift holds it")
    operator.nudge()
    chat.drift["fp8"] = 0.02
    chat.turns(operator, 40)
    assert chat.weights("prose")["chat-fp8"] == 10_000
    assert chat.conditions()["Degraded"][0] == "True"
    with pytest.raises(ClusterError, match="pins nothing"):
        unfreeze(policy, pinned=True)
    assert "the night shift holds it" in unfreeze(policy, pinned=False)
    operator.nudge()
    chat.turns(operator, 10)
    assert chat.weights("prose")["chat-bf16"] == 10_000


@pytest.mark.needs("kube_api")
@pytest.mark.slow
def test_a_pinned_table_is_in_force_until_it_ends(chat: Bench) -> None:
    """A pinned table is written to the route and ends by itself."""
    policy = PolicyName(namespace=chat.namespace, name="chat")
    operator = chat.operator()
    chat.turns(operator, 4)
    freeze(policy, "60m", "a test", ["prose=bf16:0.7,fp8:0.3"])
    operator.nudge()
    chat.turns(operator, 2)
    assert chat.weights("prose") == {"chat-fp8": 3000, "chat-bf16": 7000, "selvage-refuse": 0}
    chat.now_s += 3700.0
    chat.turns(operator, 90)
    assert chat.weights("prose")["chat-fp8"] == 10_000


@pytest.mark.needs("kube_api")
def test_bad_arguments_are_refused_and_change_nothing(chat: Bench) -> None:
    """An unknown policy or kernel is named in the refusal, and the resource stays as it was."""
    before = chat.read("RoutePolicy", "chat")["metadata"]["resourceVersion"]
    with pytest.raises(ClusterError, match=r"no RoutePolicy nobody .*there are: chat"):
        freeze(PolicyName(namespace=chat.namespace, name="nobody"), "1h", "a test")
    policy = PolicyName(namespace=chat.namespace, name="chat")
    with pytest.raises(ClusterError, match="strange"):
        freeze(policy, "1h", "a test", ["prose=strange"])
    with pytest.raises(ClusterError, match="add up to 1"):
        freeze(policy, "1h", "a test", ["prose=bf16:0.5"])
    with pytest.raises(DocumentError, match="who does it and why"):
        freeze(policy, "1h", " ")
    with pytest.raises(ClusterError, match="is not frozen"):
        unfreeze(policy, pinned=False)
    assert chat.read("RoutePolicy", "chat")["metadata"]["resourceVersion"] == before


def test_the_newest_decisions_are_explained_from_the_cluster(
    api: client.ApiClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moves with reasons, conditions and Events come from the cluster; a new leader keeps old decisions."""
    bench = Bench(api=api, namespace=namespace)
    bench.struck("fp8")

    @contextmanager
    def reached() -> Iterator[client.ApiClient]:
        yield api

    monkeypatch.setattr(commands, "cluster_client", reached)
    before = CliRunner().invoke(app, ["explain", "--kubernetes", "chat", "--namespace", namespace])
    assert before.exit_code == 0, before.output
    assert "prose: " in before.output
    assert "because: " in before.output
    assert "Warning DegradedHardClauseBroken" in before.output or "Warning DegradedC" in before.output
    decisions = bench.read("RoutePolicy", "chat")["status"]["decisions"]
    assert 1 <= len(decisions) <= 10
    assert decisions == sorted(decisions, key=lambda one: str(one["at"]), reverse=True)
    bench.turns(bench.operator(), 2)
    assert bench.read("RoutePolicy", "chat")["status"]["decisions"][-1:] == decisions[-1:]
    other = CliRunner().invoke(app, ["explain", "--kubernetes", "nobody", "--namespace", namespace])
    assert other.exit_code == 2
    assert "name one of these" in other.output
