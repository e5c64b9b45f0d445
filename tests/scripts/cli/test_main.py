"""The command line: help without imports, exit codes, errors without tracebacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from contracts.assess.register import PromotionRefusedError
from contracts.errors import DocumentError, LostWorkerError, MeasurementError, MissingPartError, Problem
from contracts.loading.shipped import SHIPPED_ARTEFACT
from contracts.metrics import UnknownMetricError
from scripts.cli import bench as cmd_bench
from scripts.cli import main as selvage
from scripts.guard import on_interrupt
from tests.support.paths import ROOT

PROBLEM = Problem(
    file="a.yaml", line=3, path="spec.x", expected="a number", actual="b", next_step="write one"
)


def command_line(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the console script's entry point in a separate process."""
    code = "from scripts.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=300
    )


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """The root with one command ``bench``, with behaviour set by a test."""
    app = typer.Typer()
    monkeypatch.setattr(selvage, "import_module", lambda name: SimpleNamespace(app=app))
    return app


def test_help_lists_every_command_and_imports_none() -> None:
    """``--help`` shows all commands and loads neither numpy nor a command's module."""
    code = (
        "import sys\nfrom scripts.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'numba', 'pydantic', 'torch'} & set(sys.modules)\n"
        "heavy |= {m for m in sys.modules if m.startswith('scripts.cli.')} - {'scripts.cli.main'}\n"
        "sys.exit(1 if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in selvage.COMMANDS)


@pytest.mark.parametrize("name", list(selvage.COMMANDS))
def test_every_command_has_help(name: str) -> None:
    """Each command of the table exists and has a help text."""
    done = CliRunner().invoke(selvage.app, [name, "--help"])
    assert done.exit_code == 0, done.output
    assert "Usage" in done.output


def test_version_is_that_of_the_distribution() -> None:
    """``--version`` prints the version and nothing else."""
    done = command_line("--version")
    assert done.returncode == 0
    assert done.stdout.strip() == "0.1.0"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DocumentError([PROBLEM]), 2),
        (MissingPartError("vLLM is missing; run: make setup-test"), 2),
        (MeasurementError("the canary did not change"), 2),
        (LostWorkerError("a process was killed"), 2),
        (PromotionRefusedError("not promoted"), 1),
        (UnknownMetricError("unknown metric"), 2),
        (ModuleNotFoundError("No module named 'onnxruntime'", name="onnxruntime"), 2),
        (BrokenPipeError(32, "Broken pipe"), 141),
        (ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn"), 2),
        (PermissionError(13, "Permission denied", "/results/a.json"), 2),
        (KeyboardInterrupt(), 130),
        (typer.Exit(3), 3),
    ],
)
def test_deliberate_errors_become_exit_codes(failing: typer.Typer, error: BaseException, code: int) -> None:
    """A deliberate error is a message on stderr and a documented exit code, never a traceback."""

    @failing.command()
    def bench() -> None:
        raise error

    done = CliRunner().invoke(selvage.app, ["bench"])
    assert done.exit_code == code
    assert "Traceback" not in done.output
    assert done.stdout == ""


def test_an_interrupted_command_says_what_was_kept(failing: typer.Typer) -> None:
    """The command's note on the interruption is in its one line."""

    @failing.command()
    def bench() -> None:
        with on_interrupt(lambda: "two files are kept"):
            raise KeyboardInterrupt

    done = CliRunner().invoke(selvage.app, ["bench"])
    assert (done.exit_code, done.stderr) == (130, "interrupted: two files are kept\n")


def test_bugs_keep_their_traceback(failing: typer.Typer) -> None:
    """A missing module of ours is a bug, not a missing optional part."""

    @failing.command()
    def bench() -> None:
        raise ModuleNotFoundError("No module named 'contracts.x'", name="contracts.x")

    done = CliRunner().invoke(selvage.app, ["bench"])
    assert isinstance(done.exception, ModuleNotFoundError)


def test_unknown_command_exits_with_two() -> None:
    """A misspelt command is bad input."""
    done = command_line("smulate")
    assert done.returncode == 2
    assert "No such command" in done.stderr


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("selvage con", "contract"), ("selvage contract vali", "validate"), ("selvage e5 --see", "--seeds")],
)
def test_shell_completion_reaches_lazy_commands(typed: str, offered: str) -> None:
    """Completion offers commands, their subcommands and their options, though modules load lazily."""
    asked = {"_SELVAGE_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    code = "from scripts.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert offered in done.stdout.split()


def test_unknown_benchmark_lists_the_known_ones() -> None:
    """A misspelt benchmark is bad input that names the choices."""
    done = command_line("bench", "no-such")
    assert done.returncode == 2
    assert all(name in done.stderr for name in cmd_bench.names())


def test_a_scenario_is_refused_where_a_benchmark_runs_on_none() -> None:
    """``--scenario`` for a benchmark without one is bad input, before anything runs."""
    done = command_line("bench", "shield", "--scenario", "mine.yaml")
    assert done.returncode == 2
    assert "--scenario" in done.stderr


def test_benchmark_prints_a_flat_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """``bench --json`` prints one flat object: the figures, the versions, the machine."""
    monkeypatch.setattr(cmd_bench, "names", lambda: ["sample"])
    monkeypatch.setattr(
        cmd_bench, "import_module", lambda name: SimpleNamespace(run=lambda: {"seed": 1, "x": 2.0})
    )
    done = CliRunner().invoke(selvage.app, ["bench", "sample", "--json"])
    figures = json.loads(done.stdout)
    assert figures["x"] == 2.0
    assert {"seed", "python", "machine_cores", "version_numpy"} <= set(figures)
    assert not any(isinstance(value, (dict, list)) for value in figures.values())


def test_a_home_that_cannot_be_written_changes_nothing() -> None:
    """It is not reported, and no library stores or sends anything from there."""
    code = "from scripts.cli.main import main; main()"
    settings = {**os.environ, "HOME": "/proc/nowhere", "PYTHONPATH": str(ROOT)}
    settings.pop("ORT_DISABLE_TELEMETRY", None)
    done = subprocess.run(
        [sys.executable, "-c", code, "policy", "show", SHIPPED_ARTEFACT],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=settings,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "accepted" in done.stdout


def test_a_working_directory_that_was_deleted_is_said(tmp_path: Path) -> None:
    """Commands that need one are refused by name, without a bug report."""
    gone = tmp_path / "gone"
    gone.mkdir()
    code = """
import os
from scripts.cli.main import explained
os.rmdir(os.getcwd())
try:
    os.getcwd()
except OSError as error:
    print(*explained(error))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=gone,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout == "the working directory was deleted; go to another one (cd) 2\n"


@pytest.mark.parametrize("name", ["pin", "unpin", "freeze", "unfreeze"])
def test_one_module_may_have_several_root_commands(name: str) -> None:
    """Each is reached by its own name, and not as a group of all."""
    command = selvage.command_of(name, selvage.COMMANDS[name][0])
    assert command.name == name
    assert not hasattr(command, "commands")


def test_status_without_a_cluster_names_the_command_that_is_meant() -> None:
    """What runs on this machine is shown by another command."""
    done = CliRunner().invoke(selvage.app, ["status"])
    assert done.exit_code == 2
    assert "selvage fleet status" in done.output
