"""The import rules: the tree keeps them, and breaches are detected."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import pytest

from scripts.cli.main import COMMANDS
from tests.support.paths import FOLDERS, ROOT

LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter over the packages in ``folder``."""
    return subprocess.run(
        [sys.executable, "-P", "-c", LINT, "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "1000"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def copied_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources in a folder that a test may change."""
    folder = tmp_path_factory.mktemp("tree")
    for name in FOLDERS:
        copytree(ROOT / name, folder / name, ignore=ignore_patterns("__pycache__", "library"))
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    return folder


#: Imports against the order of layers, and of the rooms inside them.
BREACHES = {
    "contracts/units.py": "import time",
    "controller/ports.py": "import simpy",
    "simulator/__init__.py": "import policies",
    "faults/__init__.py": "import controller.ports",
    "live/__init__.py": "import simulator",
    "policies/__init__.py": "import torch",
    "k8s/__init__.py": "import scripts.setup.warm",
    "scripts/__init__.py": "import selvage_fleet.documents",
    "contracts/documents/envelope.py": "import contracts.assess.evaluate",
    "contracts/scoring/episode.py": "import contracts.assess.evaluate",
    "contracts/loading/scalars.py": "import contracts.compiled.contract",
    "contracts/rules/pool.py": "import contracts.loading.uris",
    "contracts/metrics/registry.py": "import contracts.rules.breach",
    "contracts/documents/suite.py": "import contracts.metrics.registry",
    "contracts/telemetry.py": "import contracts.documents.suite",
    "controller/shield/rows.py": "import controller.supervise.gate",
    "controller/perceive/estimate.py": "import controller.judge.judge",
    "controller/detect/sums.py": "import controller.state",
    "controller/detect/streams/protocol.py": "import controller.detect.calibration.laws",
    "controller/judge/replicas/hang.py": "import controller.judge.kernels.loss",
    "live/measure/steps/spread.py": "import live.measure.backends.quantize",
    "k8s/operator/pods/slots.py": "import k8s.operator.telemetry.pool_reader",
    "simulator/engine/counters.py": "import simulator.world.tables",
    "simulator/world/tables.py": "import simulator.env.core",
    "policies/certify/certificate.py": "import policies.registry",
    "policies/rules/fixed.py": "import policies.learned.runner",
    "scripts/e5/suite.py": "import scripts.cli.e5",
    "scripts/e5/scores/parts.py": "import scripts.train.certify",
    "scripts/train/certify.py": "import scripts.studies.training.native_ppo",
    "scripts/studies/detection/cases.py": "import scripts.bench.env",
    "scripts/bench/tick.py": "import scripts.cli.bench",
    "scripts/cli/train.py": "import scripts.cli.e5",
    "scripts/cli/replay.py": "import scripts.cli.run",
    "scripts/cli/options.py": "import scripts.cli.drill",
    "scripts/parity/capacity.py": "import scripts.bench.capacity",
    "scripts/e5_local/plan.py": "import scripts.e5_cluster.plan",
    "scripts/drill/report.py": "import scripts.e5_drills.plan",
    "scripts/partial_results.py": "import scripts.e5.configurations",
    "faults/client/wire.py": "import faults.drill.outcome",
    "faults/catalogue.py": "import faults.effects",
    "controller/promotion/records.py": "import controller.healing.records",
    "controller/healing/records.py": "import controller.loop",
    "simulator/drive.py": "import simulator.fleet",
    "policies/offline/data.py": "import policies.train.recipe",
    "policies/spec.py": "import policies.registry",
    "live/artefacts/fetch.py": "import live.measure.endpoint",
    "k8s/operator/drills/work.py": "import k8s.operator.promotion.calls",
    "k8s/routes/rules.py": "import k8s.operator.status.log_fields",
    "faults/inside/logits.py": "import contracts.units",
    "simulator/lives.py": "import httpx",
    "simulator/engine/replica.py": "import simulator.engine.routing",
    "simulator/env/costs.py": "import simulator.env.core",
    "controller/supervise/switch_counter.py": "import controller.supervise.gate",
    "policies/certify/signature.py": "import policies.certify.admission",
    "scripts/e5/scores/comparison.py": "import scripts.e5.report.tables",
    "scripts/e5/scores/results.py": "import scripts.e5.scores.harm",
    "scripts/e5/run/jobs.py": "import scripts.e5.run.experiment",
    "scripts/studies/worlds/harm.py": "import scripts.studies.detection.cases",
}
#: A contract's name in the part of a report that says how it is broken, and what follows.
TITLE = re.compile(r"^(\S.*)\n-+\n", re.MULTILINE)


def written() -> list[dict[str, Any]]:
    """The contracts of ``pyproject.toml``."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return list(told["tool"]["importlinter"]["contracts"])


def test_every_room_has_its_place() -> None:
    """Every package of a layer, and every one inside, appears in a declared order."""
    fields = ("layers", "modules", "source_modules")
    lines = [line for one in written() for field in fields for line in one.get(field, [])]
    named = {name.strip() for line in lines for name in re.split(r"[|:]", line)}
    rooms = {
        ".".join(init.parent.relative_to(ROOT).parts)
        for layer in FOLDERS
        for depth in ("*", "*/*")
        for init in (ROOT / layer).glob(f"{depth}/__init__.py")
    }
    assert not rooms - named


def test_every_command_is_among_the_independent_ones() -> None:
    """A module that provides a command may import no other such module."""
    commands = {f"scripts.cli.{module}" for modules, _ in COMMANDS.values() for module in modules}
    apart = next(one["modules"] for one in written() if one["name"] == "No command imports another")
    assert set(apart) == commands


def module_of(file: str) -> str:
    """Name of the module in a file of the tree."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_planted_breaches_are_found(copied_tree: Path) -> None:
    """Every forbidden import is reported with its file, and each contract is broken by one."""
    assert lint(copied_tree).returncode == 0
    for file, line in BREACHES.items():
        path = copied_tree / file
        path.write_text(f"{path.read_text()}\n{line}\n")
    done = lint(copied_tree)
    assert done.returncode == 1
    planted = {
        file: f"{module_of(file)} -> {line.removeprefix('import ')}" for file, line in BREACHES.items()
    }
    report = done.stdout.split("Broken contracts", 1)[1]
    assert not [file for file, edge in planted.items() if edge not in " ".join(report.split())]
    _, *told = TITLE.split(report)
    broken = dict(zip(told[::2], told[1::2], strict=True))
    unharmed = {
        name
        for name in (one["name"] for one in written())
        if not any(edge in broken.get(name, "") for edge in planted.values())
    }
    assert not unharmed, "plant a breach of each"
