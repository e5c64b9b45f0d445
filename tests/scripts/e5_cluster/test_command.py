"""The command line of E5 on a cluster: options without effect, or unknown names, are bad input."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from scripts.cli.main import app

_NAMED = ["--target", "kubernetes", "--route-policy", "chat"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--undo"], "--undo"),
        (["--target", "local", "--undo"], "--undo"),
        (["--target", "kubernetes"], "--route-policy"),
        (["--target", "kubernetes", "--undo"], "--route-policy"),
        ([*_NAMED, "--suite", "mine.yaml"], "--suite"),
        ([*_NAMED, "--jobs", "2"], "--jobs"),
        ([*_NAMED, "--folder", "here"], "--folder"),
        ([*_NAMED, "--hold", "10"], "--hold"),
        ([*_NAMED, "--drills", "a.yaml"], "KUBECONFIG"),
        ([*_NAMED, "--undo"], "KUBECONFIG"),
    ],
)
def test_bad_options_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    """Exit code 2, and no folder is left behind."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    done = CliRunner().invoke(app, ["e5", *words, "--out", str(tmp_path / "out")])
    assert done.exit_code == 2, done.output
    assert message in done.output
    assert not (tmp_path / "out").exists()
