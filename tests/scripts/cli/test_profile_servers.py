"""``selvage profile`` on running servers: refusals before measuring, and results of an interruption."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from scripts.cli.main import app
from scripts.cli.measuring import measured_run as profile_run
from tests.support.servers.bigram_server import FakeServer
from tests.support.servers.listening import Answering, listening


@dataclass
class Served:
    """A fake server by its URL."""

    url: str = ""
    ended: threading.Event = field(default_factory=threading.Event)
    answers: FakeServer = field(default_factory=FakeServer)


class Serving(Answering):
    """Passes requests to its fake server."""

    def do_GET(self) -> None:
        """A request without a body."""
        self.do_POST()

    def do_POST(self) -> None:
        """The answer of ``FakeServer``."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = httpx.Request(self.command, f"http://server{self.path}", content=body)
        found = self.server.known.answers(request)
        self.answer(found.status_code, found.content)


@pytest.fixture
def server() -> Iterator[Served]:
    """A server of the bigram model."""
    with listening(Served(), Serving) as known:
        yield known


def profile(folder: Path, url: str, *more: str) -> Result:
    """The command on three prompts with tokens known to the server."""
    rows = [{"slice": "sql", "token_ids": [0, 5 + at, 9, 7]} for at in range(3)]
    (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["profile", "--endpoint", url, "--name", "half", "--no-step-times", "--repeats", "1"]
    words += ["--prompts", str(folder / "mine.jsonl"), "--out", str(folder / "out"), *more]
    return CliRunner().invoke(app, words)


@pytest.fixture
def nothing_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if the reference, which is measured first, is requested."""

    def measured(*_: object) -> None:
        raise AssertionError("something was measured")

    monkeypatch.setattr(profile_run, "_reference", measured)


@pytest.mark.usefixtures("nothing_measured")
@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        (["bad=http://127.0.0.1:9"], "http://127.0.0.1:9: expected a server that answers"),
        (["bad=SERVER", "bad=SERVER"], "--condition: expected a name for each server, got bad twice"),
        (["healthy=SERVER"], "--condition: expected a name for each server, got healthy"),
    ],
)
def test_conditions_are_checked_before_anything_is_measured(
    tmp_path: Path, server: Served, conditions: list[str], said: str
) -> None:
    """An unreachable server of a condition, or a name given twice, costs no measurement."""
    words = [w for one in conditions for w in ("--condition", one.replace("SERVER", server.url))]
    result = profile(tmp_path, server.url, *words)
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.usefixtures("nothing_measured")
def test_a_server_that_cannot_score_is_refused_before_anything_is_measured(
    tmp_path: Path, server: Served
) -> None:
    """Too few log-probabilities are found by one prompt, not after the reference."""
    server.answers = FakeServer(top_k=4, own=False)
    result = profile(tmp_path, server.url)
    assert result.exit_code == 2, result.output
    assert "the server returned 4 log-probabilities, 20 wanted" in result.output


@pytest.mark.usefixtures("nothing_measured")
def test_a_store_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, server: Served
) -> None:
    """A file in place of the reference store is refused by its path."""
    (tmp_path / "store").write_text("")
    result = profile(tmp_path, server.url, "--reference-store", str(tmp_path / "store"))
    assert result.exit_code == 2, result.output
    assert f"{tmp_path / 'store'}: expected a folder that can be written" in result.output


def test_an_interruption_says_what_there_is(
    tmp_path: Path, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the reference is measured: nothing was finished, and how to keep the reference."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(profile_run, "_reference", interrupted)
    result = profile(tmp_path, server.url)
    assert result.exit_code == 130, result.output
    assert "interrupted: no profile was finished; the same command begins anew" in result.output
    assert f"Trying {server.url} by one prompt." in result.output
    assert "--reference-store" in result.output
