"""The build rewrites imports of layers, and nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from contracts.home import LAYERS
from scripts.setup.one_package import RewriteError, layer_packages, rewritten
from tests.support.paths import ROOT

SOURCES = sorted(
    path
    for name in (*LAYERS, "selvage_fleet")
    for path in (ROOT / name).rglob("*.py")
    if path.parent.name != "setup" or path.stem in ("doctor", "warm", "__init__")
)


@pytest.mark.parametrize(
    ("written", "built"),
    [
        ("from contracts.units import s_from_ms\n", "from selvage_fleet.contracts.units import s_from_ms\n"),
        ("from policies import route\n", "from selvage_fleet.policies import route\n"),
        ("import contracts\n", "from selvage_fleet import contracts\n"),
        ("import contracts as c\n", "from selvage_fleet import contracts as c\n"),
        ("import simulator.env.core as env\n", "import selvage_fleet.simulator.env.core as env\n"),
        (
            "def f():\n    from faults import effects\n",
            "def f():\n    from selvage_fleet.faults import effects\n",
        ),
        ("é = 1; from live import measure\n", "é = 1; from selvage_fleet.live import measure\n"),
        ("from scripts import (\n    cli,\n)\n", "from selvage_fleet.scripts import (\n    cli,\n)\n"),
    ],
)
def test_import_of_a_layer_moves_into_the_package(written: str, built: str) -> None:
    """Every form of import of a layer gains the package, and keeps its names and its lines."""
    assert rewritten(written, "a.py") == built


@pytest.mark.parametrize(
    "text",
    [
        "import numpy\nfrom contracts_of_others import x\nfrom .contracts import y\n",
        'text = "from contracts import units"  # import policies\n',
        '"""One may write\n\n    from contracts.units import s_from_ms\n"""\n',
        "contracts = policies = 1\n",
        'files = "contracts/library", "package:contracts/library/x.yaml", "faults.count"\n',
    ],
)
def test_everything_else_stays(text: str) -> None:
    """Other packages, relative imports, texts, comments, names and paths keep every byte."""
    assert rewritten(text, "a.py") == text


@pytest.mark.parametrize(
    ("text", "actual"),
    [
        ("import contracts.units\n", "a dotted one"),
        ("import contracts, numpy\n", "several names"),
        ("from \\\n  contracts import units\n", "the module on the line"),
        ("name = 'contracts.units'\n", "'contracts.units'"),
        ("name = 'simulator.env.gym:FleetRoutingEnv'\n", "'simulator.env.gym:FleetRoutingEnv'"),
    ],
)
def test_what_cannot_be_moved_stops_the_build(
    text: str, actual: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module's name in a string, or an import that binds a layer's name, is refused with its line."""
    monkeypatch.chdir(ROOT)
    with pytest.raises(RewriteError, match=rf"a\.py:1: expected .*{actual}"):
        rewritten(text, "a.py")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_source_names_a_layer_at_the_top_when_built(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Built, no module imports a layer from outside the package, and every line stays where it was."""
    monkeypatch.chdir(ROOT)
    text = path.read_text()
    built = rewritten(text, str(path))
    assert len(built.splitlines()) == len(text.splitlines())
    for node in ast.walk(ast.parse(built)):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            assert str(node.module).partition(".")[0] not in LAYERS
        if isinstance(node, ast.Import):
            assert not {alias.name.partition(".")[0] for alias in node.names} & set(LAYERS)


def test_every_sub_package_is_installed() -> None:
    """No folder of sources lacks an ``__init__.py``; files that manifests mount are data."""
    packages, folders = layer_packages(ROOT)
    with_sources = {path.parent for layer in LAYERS for path in (ROOT / layer).rglob("*.py")}
    with_sources -= {ROOT / "k8s" / "manifests" / "components" / "pod-metrics"}
    assert {f"selvage_fleet.{'.'.join(p.relative_to(ROOT).parts)}" for p in with_sources} == set(packages)
    assert folders["selvage_fleet.contracts"] == "contracts"
