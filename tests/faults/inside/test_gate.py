"""Access to drills: from loopback on the server's own port, or through the separate drill port."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.inside import gate
from faults.inside.gate import TOKEN_HEADER, refusal

TOKEN = "a-token-of-the-tests-alone"
GIVEN = ((TOKEN_HEADER.encode(), TOKEN.encode()),)


def environment(folder: Path, port: str) -> dict[str, str]:
    """Environment of a server that was started for drills."""
    token = folder / "token"
    token.write_text(TOKEN)
    return {gate.FLAG: "1", gate.TOKEN_FILE: str(token), gate.FOLDER: str(folder), gate.PORT: port}


@pytest.mark.parametrize(
    ("port", "host", "at_door", "headers", "said"),
    [
        ("0", "127.0.0.1", False, GIVEN, ""),
        ("0", "10.0.0.9", False, GIVEN, "loopback"),
        ("9465", "127.0.0.1", False, GIVEN, "port 9465 alone"),
        ("9465", "10.0.0.9", True, GIVEN, ""),
        ("9465", "10.0.0.9", True, (), "does not hold"),
        ("9465", "10.0.0.9", True, (*GIVEN, (b"x-forwarded-for", b"1.2.3.4")), "no proxy"),
    ],
)
def test_a_port_of_drills_takes_the_place_of_loopback(
    tmp_path: Path, port: str, host: str, at_door: bool, headers: tuple[tuple[bytes, bytes], ...], said: str
) -> None:
    """With a drill port calls are accepted there alone, from anywhere, always with the token and no proxy."""
    found = refusal(gate.gate(environment(tmp_path, port)), host, headers, at_door=at_door)
    assert said in found
    assert bool(found) == bool(said)


@pytest.mark.parametrize("port", ["-1", "drills", "65536"])
def test_a_port_that_is_none_shuts_the_gate(tmp_path: Path, port: str) -> None:
    """An invalid port opens nothing."""
    assert not gate.gate(environment(tmp_path, port)).enabled
