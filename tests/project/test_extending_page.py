"""The examples of docs/extending.md, as separately installed distributions."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from typing import Any

import pytest

from tests.support.documents.plugins import write_plugin
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "extending.md").read_text()
MODULE = re.compile(r"^```python [^\n]*module=(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
POINTS = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def entry_points() -> dict[str, dict[str, str]]:
    """Every entry point of the page, by group."""
    found: dict[str, dict[str, str]] = {}
    for block in POINTS.findall(PAGE):
        for group, points in tomllib.loads(block)["project"]["entry-points"].items():
            found.setdefault(group, {}).update(points)
    return found


def test_every_extension_point_has_a_short_example() -> None:
    """Each group has a module of its own on the page, of 20 lines at most, named by an entry point."""
    modules = dict(MODULE.findall(PAGE))
    points = entry_points()
    assert set(points) == {f"selvage_fleet.{kind}" for kind in ("policies", "metrics", "faults", "detectors")}
    assert {module for group in points.values() for module in group.values()} == set(modules)
    assert {
        name: len(body.splitlines()) for name, body in modules.items() if len(body.splitlines()) > 20
    } == {}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results of the examples, each installed as its own distribution."""
    installed, folder = tmp_path_factory.mktemp("installed"), tmp_path_factory.mktemp("world")
    for module, body in MODULE.findall(PAGE):
        groups = {
            group: {name: home for name, home in points.items() if home == module}
            for group, points in entry_points().items()
        }
        write_plugin(installed / module, module, {g: p for g, p in groups.items() if p}, body, name=module)
    paths = [str(ROOT), *(str(path) for path in installed.iterdir())]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.documents.own_extensions", str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert done.returncode == 0, done.stderr
    plain: dict[str, Any] = json.loads(done.stdout)
    return plain


@pytest.mark.slow
class TestInstalledExamples:
    """Each example works, by its name alone."""

    def test_nothing_is_imported_unasked(self, found: dict[str, Any]) -> None:
        """A world without them runs without importing them."""
        assert found["idle"]

    def test_the_policy_leaves_the_kernel_that_broke_its_contract(self, found: dict[str, Any]) -> None:
        """The kernel had weight, has none at the end, and no request is shed."""
        assert found["policy"] == "by-capacity:least_replicas=2"
        assert found["before"] > 0.05
        assert (found["after"], found["shed"]) == (0.0, 0.0)

    def test_the_detector_moves_by_its_margin(self, found: dict[str, Any]) -> None:
        """Without a margin the fault moves traffic; with an unreachable margin it moves none."""
        some, none = found["moves"]
        assert some > 0
        assert none == 0

    def test_the_fault_makes_steps_slower(self, found: dict[str, Any]) -> None:
        """Throttled to a quarter of its speed, a kernel keeps the same requests longer."""
        assert found["slower"] > 1.2

    def test_the_metric_is_judged(self, found: dict[str, Any]) -> None:
        """Looping answers break a contract that forbids them, others keep it."""
        assert found["looping"] == ["fail", "pass"]
