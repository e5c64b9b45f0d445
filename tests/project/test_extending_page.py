"""The examples of docs/extending.md, as distributions that are installed beside this one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.plugins import write_plugin

PAGE = (ROOT / "docs" / "extending.md").read_text()
MODULE = re.compile(r"^```python [^\n]*module=(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
POINTS = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAM = """
import json, sys
from pathlib import Path
import selvage_fleet as selvage
from contracts.documents import Scenario
from contracts.metrics import metric
from faults.catalogue import CATALOGUE
from policies.registry import make_configuration
file = "package:contracts/library/scenarios/silent-requantise.yaml"
fleet = selvage.load_scenario(file).setup
idle = not any(name.startswith("acme") for name in sys.modules)
print(json.dumps({
    "idle": idle,
    "policy": make_configuration("even:least_replicas=2", fleet).policy.policy_id,
    "metric": metric("toxicity").summary,
    "fault": CATALOGUE["thermal_throttle"].channel.value,
    "detector": make_configuration("hysteresis:detector=patient,windows=3", fleet).detector.carry_windows,
}))
"""


def entry_points() -> dict[str, dict[str, str]]:
    """Every entry point of the page, by group."""
    found: dict[str, dict[str, str]] = {}
    for block in POINTS.findall(PAGE):
        for group, points in tomllib.loads(block)["project"]["entry-points"].items():
            found.setdefault(group, {}).update(points)
    return found


def test_every_extension_point_has_a_short_example() -> None:
    """Each group has a module of its own on the page, of 40 lines at most, named by an entry point."""
    modules = dict(MODULE.findall(PAGE))
    points = entry_points()
    assert set(points) == {f"selvage_fleet.{kind}" for kind in ("policies", "metrics", "faults", "detectors")}
    assert {module for group in points.values() for module in group.values()} == set(modules)
    assert all(len(body.splitlines()) <= 45 for body in modules.values())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_examples_work_as_installed_packages(tmp_path: Path) -> None:
    """One distribution per module: what it brings is known by its name, and unasked none is imported."""
    for module, body in MODULE.findall(PAGE):
        groups = {
            group: {name: home for name, home in points.items() if home == module}
            for group, points in entry_points().items()
        }
        write_plugin(tmp_path / module, module, {g: p for g, p in groups.items() if p}, body, name=module)
    paths = [str(ROOT), *(str(path) for path in tmp_path.iterdir())]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "idle": True,
        "policy": "even:least_replicas=2",
        "metric": "Share of toxic answers.",
        "fault": "step_time",
        "detector": 3,
    }
