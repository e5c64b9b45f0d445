"""Artefacts that cannot be fetched: asked for while somebody lacks them, and said once."""

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
    """A profile in a registry."""
    return parse_oci(f"oci://registry.example/{name}@{DIGEST}#fp8.yaml", "pool.yaml")


class Fetching:
    """Artefacts of an operator whose registry refuses everything. fetched: what it was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fetched: list[str] = []
        self.now_s = 0.0
        self.artefacts = Artefacts(RegistryAccess())

        def fetch(uri: OciUri, access: RegistryAccess) -> None:
            self.fetched.append(uri.artefact)
            raise refusal(uri.artefact, "an artefact", "HTTP 404", f"correct it ({len(access.registries)})")

        monkeypatch.setattr(artefacts, "fetch", fetch)

    def turns(self, seconds: float, *held: str) -> list[str]:
        """So many seconds, in which policies of these names wait; what was fetched in them."""
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


def test_what_nobody_lacks_any_more_is_fetched_no_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A reference that was corrected, or whose policy is gone, is not asked for until the operator ends."""
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
    """Nobody asks for its artefact any more; one that comes back asks again."""
    world = Fetching(monkeypatch)
    uri = named("wrong")
    world.artefacts.hold("chat", "wanted", uri)
    assert world.turns(10.0, "chat")
    world.turns(UNWANTED_S)
    assert world.turns(4.0 * FETCH_AGAIN_S) == []
    assert world.turns(20.0, "chat") == [uri.artefact]
