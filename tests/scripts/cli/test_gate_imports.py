"""Imports of the gate of continuous integration: ``contract evaluate`` imports only what it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module

import pytest

from scripts import cli
from scripts.cli.main import ALONE, COMMANDS, collect
from tests.support.paths import ROOT

PROGRAM = """
import json, sys
from scripts.cli.main import main
sys.argv = ["selvage", *json.loads(sys.argv[1])]
try:
    main()
except SystemExit as ended:
    code = ended.code
print(json.dumps({"code": code, "modules": sorted(sys.modules)}), file=sys.stderr)
"""
LIBRARY = "package:contracts/library/"
GATE = ["contract", "evaluate", f"{LIBRARY}serving-pool.yaml", f"{LIBRARY}profiles/bf16.yaml"]
#: Worlds and their drivers, and the libraries that they use.
WORLDS = ("controller", "faults", "k8s", "live", "policies", "simulator")
HEAVY = (
    "gymnasium", "httpx", "jinja2", "kubernetes", "llvmlite", "matplotlib", "numba", "onnxruntime", "optuna",
    "pandas", "scipy", "simpy", "stable_baselines3", "torch", "transformers", "vllm",
)  # fmt: skip
#: Kinds of documents that no gate reads, and neighbouring commands.
KINDS = ("artifact", "drill", "meta", "pool", "promotion", "route", "scenario", "suite")
BESIDE = (
    "contracts.assess.bound_table", "contracts.assess.evidence", "contracts.assess.propose",
    "contracts.loading.references", "contracts.loading.template", "scripts.cli.contract", "scripts.cli.init",
)  # fmt: skip


def imported(*more: str) -> tuple[int, set[str]]:
    """Exit code of the gate in a separate process, and every module that it imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([*GATE, *more])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stderr.splitlines()[-1])
    return int(found["code"]), set(found["modules"])


@pytest.fixture(scope="module")
def gate() -> set[str]:
    """Modules imported by a gate with an inconclusive verdict, printed as a table."""
    code, found = imported()
    assert code == 3
    assert {"contracts.assess.evaluate", "numpy", "rich.table"} <= found
    return found


def test_the_gate_needs_no_world_and_no_heavy_library(gate: set[str]) -> None:
    """No simulator, no controller, no compiler, no statistics library."""
    assert not {name for name in gate if name.partition(".")[0] in (*WORLDS, *HEAVY)}


def test_the_gate_makes_models_of_the_kinds_that_it_reads_alone(gate: set[str]) -> None:
    """Contract and profile, with their rules; nothing of neighbouring commands is imported."""
    assert "contracts.documents.profile" in gate
    assert not gate & {f"contracts.documents.{kind}" for kind in KINDS}
    assert not gate & {f"contracts.rules.{kind}" for kind in (*KINDS, "policy")}
    assert not gate & set(BESIDE)


def test_json_needs_no_tables() -> None:
    """With JSON output the libraries for tables are not imported."""
    code, found = imported("--json")
    assert code == 3
    assert "rich.table" not in found


@pytest.mark.parametrize("words", ALONE)
def test_a_command_that_is_imported_alone_is_there(words: tuple[str, str]) -> None:
    """The module has it, and it belongs to the group, so that ``--help`` shows the same command."""
    group, name = words
    assert set(ALONE[words]) <= set(COMMANDS[group][0])
    assert name in {command.name for command in collect(ALONE[words]).registered_commands}
    assert all(import_module(f"{cli.__name__}.{module}") for module in ALONE[words])
