"""A returning server, asked like a user: healthy ones agree, damaged ones do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from live.heal.mender import ServerMender, Verification
from tests.support.servers.generating import Facts, FakeServer, asking_of, golden, prompts

RIGHT = golden()


def agreed(server: FakeServer) -> list[tuple[bool, str]]:
    """The results of a pair of every prompt."""
    line = asking_of(server, RIGHT).line
    mender = ServerMender(
        line=lambda: line, verification=Verification(prompts=prompts(), golden=RIGHT, limit_s=5.0)
    )
    return [mender.probe(number) for number in range(2 * len(prompts()))]


def test_a_sound_server_is_verified() -> None:
    """Every pair agrees, and prompts repeat in turn."""
    assert set(agreed(FakeServer())) == {(True, "")}


DAMAGE: dict[str, Callable[[Facts], bool]] = {
    "a poisoned prefix cache": lambda facts: facts.hit,
    "wrong in every answer": lambda facts: True,
    "wrong at a block's edge": lambda facts: facts.prompt_tokens % 8 == 0,
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_server_is_not_verified(name: str) -> None:
    """Some pair disagrees, and names the column."""
    failed = [told for good, told in agreed(FakeServer(damage=DAMAGE[name])) if not good]
    assert failed
    assert all("beyond what is right: " in told for told in failed)


def test_an_answer_that_breaks_off_is_no_agreement() -> None:
    """A stream without a stop reason fails its pair, whatever came before."""
    assert not any(good for good, _ in agreed(FakeServer(cuts=2)))
