"""Who names no cluster is told what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from scripts.cli.main import app


@pytest.mark.parametrize("text", [None, "{}", "current-context: [", "- 1"])
def test_a_cluster_that_nobody_names_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    """No file, an empty one, no YAML, no configuration: exit code 2, and no traceback."""
    file = tmp_path / "kubeconfig"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    done = CliRunner().invoke(app, ["kubernetes", "status"])
    assert done.exit_code == 2, done.output
    assert "KUBECONFIG" in done.output
