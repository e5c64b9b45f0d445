"""The option that lists the origins which webhooks may call."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from k8s.process import serve
from k8s.process.serve import OperatorSettings
from scripts.cli.main import app


def test_origins_reach_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each origin of the command line is allowed in its normalised form; without the option none is."""
    seen: list[OperatorSettings] = []

    def served(settings: OperatorSettings) -> bool:
        seen.append(settings)
        return True

    monkeypatch.setattr(serve, "serve", served)
    given = ["--webhook-origin", "https://Hooks.example", "--webhook-origin", "http://other.example:8080/"]
    for arguments in ([], given):
        assert CliRunner().invoke(app, ["kubernetes", "operator", *arguments]).exit_code == 0
    allowed = ("https://hooks.example:443", "http://other.example:8080")
    assert [one.webhook_origins for one in seen] == [(), allowed]


@pytest.mark.parametrize("origin", ["https://hooks.example/path", "https://me:secret@hooks.example", "*"])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    """A path, a password and a wildcard give exit code 2 and name the option."""
    found = CliRunner().invoke(app, ["kubernetes", "operator", "--webhook-origin", origin])
    assert found.exit_code == 2
    assert "--webhook-origin" in found.output
    assert "secret" not in found.output
