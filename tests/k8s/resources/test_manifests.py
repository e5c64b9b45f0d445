"""The shipped definitions equal those generated from the models."""

from __future__ import annotations

from pathlib import Path

import yaml
from typer.testing import CliRunner

import k8s
from k8s.resources.definition import manifest_files
from scripts.cli.main import app

SHIPPED = Path(k8s.__file__).parent / "manifests" / "crds"


def test_the_shipped_files_are_the_generated_ones() -> None:
    """Each shipped file has the generated text."""
    shipped = {path.name: path.read_text(encoding="utf-8") for path in SHIPPED.iterdir()}
    assert shipped == manifest_files(), "write them anew: selvage kubernetes crds --out k8s/manifests/crds"


def test_the_command_writes_and_prints_the_same(tmp_path: Path) -> None:
    """The command writes to files what it prints without ``--out``."""
    written = CliRunner().invoke(app, ["kubernetes", "crds", "--out", str(tmp_path)])
    assert written.exit_code == 0
    printed = CliRunner().invoke(app, ["kubernetes", "crds"])
    files = [path for path in sorted(tmp_path.iterdir()) if path.name != "kustomization.yaml"]
    from_files = [yaml.safe_load(path.read_text()) for path in files]
    from_stream = list(yaml.safe_load_all(printed.stdout))
    assert sorted(from_stream, key=lambda one: one["metadata"]["name"]) == from_files
