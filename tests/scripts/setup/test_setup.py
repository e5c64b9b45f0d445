"""The set-up step: Python versions, requirements, and no work when nothing changed."""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from scripts.setup import bootstrap, virtual_env
from scripts.setup import steps as setup_steps
from scripts.setup import wheel as setup_wheel
from tests.support.paths import ROOT

METADATA = """\
Metadata-Version: 2.4
Name: engine
Requires-Dist: plain
Requires-Dist: Torch==2.13.0
Requires-Dist: ranged[image]<2,>=1
Requires-Dist: elsewhere; sys_platform == "atlantis"
Requires-Dist: here>=3; python_version >= "3"
Requires-Dist: wanted-by-extra; extra == "bench"
"""


@pytest.mark.parametrize(
    ("version", "fits"),
    [((3, 10), False), ((3, 11), True), ((3, 13), True), ((3, 14), False), ((2, 7), False)],
)
def test_supported_pythons(version: tuple[int, int], *, fits: bool) -> None:
    """3.11 to 3.13 are supported, nothing older or newer."""
    assert bootstrap.fits(version) is fits


def test_launcher_can_be_parsed_by_old_pythons() -> None:
    """The first step has no syntax newer than what it refuses: no annotations, f-strings or keywords."""
    tree = ast.parse((ROOT / "scripts" / "setup" / "bootstrap.py").read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert not any(isinstance(node, (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr)) for node in ast.walk(tree))
    assert not any(
        f.returns or f.args.kwonlyargs or any(a.annotation for a in f.args.args) for f in functions
    )


def test_no_fitting_python_is_refused_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a supported Python the step exits with 2 and names what to install."""
    monkeypatch.setattr(bootstrap, "fits", lambda version: False)
    monkeypatch.setattr(bootstrap, "CANDIDATES", ("no-such-python",))
    assert bootstrap.main() == 2
    assert "expected Python 3.11, 3.12 or 3.13" in capsys.readouterr().err


def test_wheel_requirements_follow_markers_and_skips() -> None:
    """Requirements of other machines, of extras and of the skip list are left out; markers are dropped."""
    kept = setup_wheel.requirements(METADATA, {"torch"})
    assert kept == ["here>=3", "plain", "ranged[image]<2,>=1"]


def test_set_up_environment_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stamp of the present inputs ends the step before it starts any process."""
    venv = virtual_env.Venv(tmp_path)
    venv.python.parent.mkdir()
    venv.python.touch()
    for part in ("core", "dev"):
        venv.record(part)
    for start in ("run", "Popen"):
        monkeypatch.setattr(
            f"scripts.setup.virtual_env.subprocess.{start}",
            lambda *a, **k: pytest.fail("a process was started"),
        )
    monkeypatch.delenv("SELVAGE_REQUIRE", raising=False)
    setup_steps.set_up(venv, ["dev"], [])


def test_compiling_begins_before_the_rest_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requirements of compiling are installed first, and the rest while it runs; both are done at the end."""
    venv, told = virtual_env.Venv(tmp_path), []
    done = tmp_path / "done"
    slow = f"import pathlib, time; time.sleep(0.5); pathlib.Path({str(done)!r}).touch()"
    for install in ("pip", "tried_pip"):
        monkeypatch.setattr(venv, install, lambda *names: told.append(names))
    _stand_in(venv, slow)
    with setup_steps.compiling(venv):
        first = ("--no-warn-conflicts", *setup_steps.COMPILES_WITH)
        assert sorted(told) == sorted([first, ("--no-deps", *setup_steps.LARGE_OTHERS)])
        assert not done.exists()
    assert done.exists()


def test_compiling_ends_with_an_installation_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiling ends when a step fails."""
    venv, done = virtual_env.Venv(tmp_path), tmp_path / "done"
    for install in ("pip", "tried_pip"):
        monkeypatch.setattr(venv, install, lambda *names: None)
    _stand_in(venv, f"import pathlib, time; time.sleep(30.0); pathlib.Path({str(done)!r}).touch()")
    with pytest.raises(virtual_env.StepError, match="no wheel"), setup_steps.compiling(venv):
        raise virtual_env.StepError("no wheel")
    assert not done.exists()


def test_large_packages_that_fail_are_left_to_the_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unavailable large packages stop nothing: the step that needs them reports it."""
    venv = virtual_env.Venv(tmp_path)

    monkeypatch.setattr(venv, "pip", lambda *names: None)
    monkeypatch.setattr(venv, "_install", lambda *names: [sys.executable, "-c", "raise SystemExit(1)"])
    _stand_in(venv, "pass")
    with setup_steps.compiling(venv):
        pass


def test_large_packages_are_the_cores_own_and_pinned() -> None:
    """Each is pinned, and none is used by compiling: two processes never write the same package."""
    pins = virtual_env.CONSTRAINTS.read_text(encoding="utf-8")
    needed = set(setup_steps.COMPILES_WITH)
    for name in setup_steps.COMPILES_WITH:
        own = [one for one in metadata.requires(name) or () if "extra ==" not in one]
        needed |= {re.split(r"[^\w-]", one)[0].lower() for one in own}
    for name in setup_steps.LARGE_OTHERS:
        assert f"\n{name}==" in pins
        assert name not in needed


def test_what_compiling_needs_is_all_that_compiling_imports() -> None:
    """The compiling step starts in an environment that holds its packages and nothing else of the core."""
    named = ", ".join(repr(name) for name in _OTHERS_OF_THE_CORE)
    code = f"import sys; sys.modules.update(dict.fromkeys(({named}))); import scripts.setup.warm"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=300)


#: Import names of the core's other packages: importing one of them fails where ``sys.modules`` has None.
_OTHERS_OF_THE_CORE = (
    "httpx",
    "jinja2",
    "joblib",
    "matplotlib",
    "onnx",
    "onnxruntime",
    "rich",
    "simpy",
    "typer",
)


def _stand_in(venv: virtual_env.Venv, code: str) -> None:
    """A python of ``venv`` that runs ``code`` whatever its arguments."""
    venv.python.parent.mkdir(exist_ok=True)
    venv.python.write_text(f"#!{sys.executable}\n{code}\n")
    venv.python.chmod(0o755)


def test_stamp_of_other_inputs_or_another_place_does_not_count(tmp_path: Path) -> None:
    """Changed inputs, or a moved environment, require a new installation."""
    venv = virtual_env.Venv(tmp_path)
    venv.python.parent.mkdir()
    venv.python.touch()
    venv.record("core")
    assert venv.parts() == {"core"}
    stamp = json.loads(venv.stamp.read_text())
    venv.stamp.write_text(json.dumps({**stamp, "path": "/elsewhere"}))
    assert venv.parts() == set()
    venv.stamp.write_text(json.dumps({**stamp, "key": "other"}))
    assert venv.parts() == set()


def test_optional_part_that_cannot_be_had_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An optional part that fails is reported and left out; a required one stops the step."""
    venv = virtual_env.Venv(tmp_path)

    def fails(venv: virtual_env.Venv) -> None:
        raise virtual_env.StepError("no wheel")

    original = setup_steps.INSTALLERS["vllm"]
    setup_steps.INSTALLERS["vllm"] = fails
    try:
        assert setup_steps.ensure(venv, "vllm", required=False) is False
        assert "going on without vllm: no wheel" in capsys.readouterr().err
        with pytest.raises(virtual_env.StepError):
            setup_steps.ensure(venv, "vllm", required=True)
    finally:
        setup_steps.INSTALLERS["vllm"] = original


@pytest.mark.parametrize("named", ["", "/some/where"])
def test_an_api_server_is_fetched_unless_one_is_named(
    named: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With KUBEBUILDER_ASSETS nothing is fetched; without it by the environment's Python, from a file."""
    ran: list[list[str]] = []
    monkeypatch.setattr(setup_steps, "run", ran.append)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", named)
    venv = virtual_env.Venv(tmp_path)
    setup_steps.fetch_kube_api(venv)
    assert [Path(command[0]) for command in ran] == [venv.python] * (not named)
    assert all(Path(command[1]).is_file() for command in ran)


def test_cuda_build_on_a_machine_without_gpu_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If pip plans CUDA packages, nothing is downloaded and the message names the setting."""
    venv = virtual_env.Venv(tmp_path)

    def plans_cuda(_: virtual_env.Venv, *arguments: str) -> None:
        report = {"install": [{"metadata": {"name": "torch"}}, {"metadata": {"name": "nvidia-cublas"}}]}
        Path(arguments[arguments.index("--report") + 1]).write_text(json.dumps(report))

    monkeypatch.setattr(virtual_env.Venv, "pip", plans_cuda)
    with pytest.raises(virtual_env.StepError, match="SELVAGE_ALLOW_CUDA"):
        setup_steps.refuse_cuda(venv)


def test_a_step_that_takes_long_says_that_it_runs(capfd: pytest.CaptureFixture[str]) -> None:
    """A silent process is reported as running now and then; a failing one ends the step with its code."""
    sleeps = [sys.executable, "-c", "import time; time.sleep(0.5); raise SystemExit(3)"]
    with pytest.raises(virtual_env.StepError, match="exit code 3"):
        virtual_env.run(sleeps, say_every_s=0.1)
    assert "setup: ... " in capfd.readouterr().err


def test_unknown_part_is_refused() -> None:
    """An unknown part name is an error that lists the known names."""
    with pytest.raises(argparse.ArgumentTypeError, match="core, dev, torch, rl, live, vllm"):
        setup_steps.names("dev,vlm")


def test_step_shows_help_under_this_python() -> None:
    """The launcher passes its arguments on."""
    command = [sys.executable, str(ROOT / "scripts" / "setup" / "bootstrap.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--optional" in done.stdout
