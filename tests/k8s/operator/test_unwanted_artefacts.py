"""Artefacts that cannot be fetched: retried while a policy needs them, and logged once."""

from __future__ import annotations

import logging
import threading

import pytest

pytest.importorskip("kubernetes", reason="install the extra k8s: make setup-test")

from contracts.errors import refusal
from contracts.loading.oci import OciUri, parse_oci
from k8s.operator import artefacts
from k8s.operator.artefacts import FETCH_AGAIN_S, UNWANTED_S, Artefacts
from live.artefacts.fetch import RegistryAccess

DIGEST = f"sha256:{'0' * 64}"


def named(name: str) -> OciUri:
    """URI of a profile in a registry."""
    return parse_oci(f"oci://registry.example/{name}@{DIGEST}#fp8.yaml", "pool.yaml")


class Fetching:
    """Artefacts of an operator whose registry refuses everything. fetched: artefacts that were requested."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fetched: list[str] = []
        self.now_s = 0.0
        self.artefacts = Artefacts(RegistryAccess())

        def fetch(uri: OciUri, access: RegistryAccess) -> None:
            self.fetched.append(uri.artefact)
            raise refusal(uri.artefact, "an artefact", "HTTP 404", f"correct it ({len(access.registries)})")

        monkeypatch.setattr(artefacts, "fetch", fetch)

    def turns(self, seconds: float, *held: str) -> list[str]:
        """Let ``seconds`` pass while the policies ``held`` wait; returns what was fetched meanwhile."""
        before, until_s = len(self.fetched), self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += 5.0
            self.artefacts.turn(self.now_s)
            for thread in threading.enumerate():
                if thread.name == "oci":
                    thread.join()
            for name in held:
                assert self.artefacts.held(name, "wanted")
        return self.fetched[before:]


def test_an_artefact_that_is_no_longer_needed_is_not_fetched(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A reference that was corrected, or whose policy was deleted, is no longer fetched."""
    world = Fetching(monkeypatch)
    wrong, right = (named(name) for name in ("wrong", "right"))
    with caplog.at_level(logging.WARNING):
        world.artefacts.hold("chat", "wanted", wrong)
        first = world.turns(2.0 * UNWANTED_S, "chat")
        assert len(first) >= 2.0 * UNWANTED_S / (FETCH_AGAIN_S + 10.0)
        assert {wrong.artefact} == set(first)
        world.artefacts.hold("chat", "wanted", right)
        world.turns(UNWANTED_S + FETCH_AGAIN_S, "chat")
        assert set(world.turns(4.0 * FETCH_AGAIN_S, "chat")) == {right.artefact}
    told = [one.message for one in caplog.records]
    assert [sum(one.artefact in line for line in told) for one in (wrong, right)] == [1, 1]


def test_a_policy_that_is_gone_leaves_nothing_to_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The artefact of a deleted policy is no longer fetched; if the policy returns, it is fetched again."""
    world = Fetching(monkeypatch)
    uri = named("wrong")
    world.artefacts.hold("chat", "wanted", uri)
    assert world.turns(10.0, "chat")
    world.turns(UNWANTED_S)
    assert world.turns(4.0 * FETCH_AGAIN_S) == []
    assert world.turns(20.0, "chat") == [uri.artefact]
