"""``selvage profile`` as a command."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contracts.documents.profile import KernelProfile
from contracts.loading.loader import load_as
from live.measure import backend
from live.measure.backend import StepPlan
from live.measure.kernels import VLLM_KERNELS, RestartFault, kernel_named
from live.measure.prompts import SHIPPED_PROMPTS, load_prompts, save_prompts
from scripts.cli.main import app
from scripts.cli.measuring.measured_run import _plan
from scripts.cli.measuring.request import BackendName, ProfileRequest, ReferenceRequest, ServerRequest
from tests.support.paths import ROOT

RUN = CliRunner()


@pytest.mark.needs("torch", "transformers")
@pytest.mark.slow
def test_a_torch_kernel_is_measured_on_own_prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on a user's prompts writes a profile that loads, with the exact command in it.

    Small batches and short contexts are timed: the whole plan takes minutes of a core.
    """
    monkeypatch.setattr(backend, "StepPlan", partial(StepPlan, batches=(1, 4), contexts=(32, 128)))
    found = load_prompts(SHIPPED_PROMPTS)
    mine = [
        p for split in ("certify", "probe", "traffic") for p in [q for q in found if q.split == split][:2]
    ]
    save_prompts(tmp_path / "mine.jsonl", mine)
    out = tmp_path / "out"
    words = ["profile", "--backend", "torch", "--kernel", "torch-bf16-sdpa", "--no-faults", "--json"]
    words += ["--step-half-width", "10", "--prompts", str(tmp_path / "mine.jsonl"), "--out", str(out)]
    result = RUN.invoke(app, words)
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout.splitlines()[-1])["profiles"]
    assert [row["kernel"] for row in summary] == ["torch-bf16-sdpa"]
    document = load_as(KernelProfile, out / "torch-bf16-sdpa.yaml")
    assert "--kernel torch-bf16-sdpa" in document.spec.provenance.command
    assert document.spec.step_time is not None
    assert not list(out.glob("*.tmp"))
    table = RUN.invoke(app, ["profile", "table", str(out)])
    assert "torch-bf16-sdpa" in table.stdout


@pytest.mark.needs("torch", "transformers")
def test_a_kernel_of_a_gpu_is_refused_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the next step, and nothing is written."""
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    words = ["profile", "--backend", "torch", "--kernel", "torch-fp8-row", "--out", str(tmp_path / "out")]
    result = RUN.invoke(app, words)
    assert result.exit_code == 2
    assert "run it where torch sees an NVIDIA GPU" in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kernel", "int3", "--out", "x"], "one of fp32, fp16, bf16"),
        (["--kernel", "bf16", "--dose", "requantise-w9", "--out", "x"], "requantise-w9"),
        (["--model", "./nowhere", "--out", "x"], "a folder with a checkpoint"),
        (["--prompts", "missing.jsonl", "--out", "x"], "missing.jsonl"),
        (["--backend", "openai", "--out", "x"], "--endpoint"),
        (["--endpoint", "http://127.0.0.1:9", "--out", "x"], "http://127.0.0.1:9: expected a server"),
        (["--endpoint", "http://127.0.0.1:9", "--name", "My Server", "--out", "x"], "small letters"),
        (
            ["--endpoint", "http://127.0.0.1:9", "--api-key-env", "NO_SUCH", "--out", "x"],
            "NO_SUCH is not set",
        ),
        (["--endpoint", "http://127.0.0.1:9", "--api-key-file", "none", "--out", "x"], "--api-key-file"),
        (["--endpoint", "http://me:word@127.0.0.1:9", "--out", "x"], "--api-key-env"),
        (["--endpoint", "http://127.0.0.1:9", "--backend", "torch", "--out", "x"], "leave one out"),
        (
            ["--endpoint", "http://127.0.0.1:9", "--faults", "--out", "x"],
            "--faults: expected kernels that run",
        ),
        (["--condition", "a=http://127.0.0.1:9", "--out", "x"], "--condition: expected --endpoint beside it"),
        (["--dtype", "float16", "--out", "x"], "--dtype: expected --endpoint beside it"),
        (["--step-sequences", "4", "--out", "x"], "--step-sequences: expected --endpoint beside it"),
        (["--reference-model", "m", "--out", "x"], "--reference-model: expected --reference-endpoint beside"),
        (
            ["--reference-endpoint", "http://127.0.0.1:9", "--device-map", "auto", "--out", "x"],
            "--device-map: expected a reference on this machine",
        ),
        (
            ["--endpoint", "http://127.0.0.1:9", "--api-key-env", "A", "--api-key-file", "b", "--out", "x"],
            "expected one key, got A and b",
        ),
        ([], "--out"),
    ],
)
def test_bad_input_ends_with_exit_code_two_and_writes_no_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    """A wrong option is named, the exit code is 2, and no profile is left behind."""
    monkeypatch.chdir(tmp_path)
    result = RUN.invoke(app, ["profile", *words])
    assert result.exit_code == 2, result.output
    assert said in " ".join(result.output.replace("│", " ").split())
    assert not list(tmp_path.rglob("*.yaml"))


@pytest.mark.parametrize("key", ["", "  ", "sk-one\nsk-two", "sk-schl\u00fcssel", "sk one"])
@pytest.mark.parametrize("by_file", [True, False])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, by_file: bool
) -> None:
    """The message names the variable or the file, and contains none of the key."""
    monkeypatch.setenv("MY_KEY", key)
    (tmp_path / "key").write_text(key, encoding="utf-8")
    given = ["--api-key-file", str(tmp_path / "key")] if by_file else ["--api-key-env", "MY_KEY"]
    words = ["profile", "--endpoint", "http://127.0.0.1:9", *given, "--out", str(tmp_path / "out")]
    result = RUN.invoke(app, words)
    assert result.exit_code == 2, result.output
    assert ("key: " if by_file else "$MY_KEY: ") + "expected one line with the key" in result.output
    assert "sk" not in result.output.replace(str(tmp_path), "")


def test_names_of_slices_are_checked_first_and_all_at_once(tmp_path: Path) -> None:
    """Every line with an invalid slice name is reported before anything is measured."""
    file = tmp_path / "mine.jsonl"
    rows = [{"slice": name, "text": "select 1"} for name in ("SQL query", "sql", "a/b")]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = RUN.invoke(app, ["profile", "--prompts", str(file), "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "mine.jsonl:1 slice" in result.output
    assert "mine.jsonl:3 slice" in result.output
    assert "mine.jsonl:2" not in result.output


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    """A profile of that name, or other prompts, are refused before anything is measured."""
    words = ["profile", "--backend", "torch", "--kernel", "torch-fp32-sdpa", "--out", str(tmp_path)]
    (tmp_path / "prompts.jsonl").write_text("others")
    result = RUN.invoke(app, words)
    assert result.exit_code == 2
    assert "prompts.jsonl" in result.output
    (tmp_path / "prompts.jsonl").unlink()
    (tmp_path / "torch-fp32-sdpa.yaml").write_text("kept")
    result = RUN.invoke(app, words)
    assert result.exit_code == 2
    assert "--force" in result.output
    assert (tmp_path / "torch-fp32-sdpa.yaml").read_text() == "kept"


def test_a_folder_without_profiles_is_refused(tmp_path: Path) -> None:
    """``table`` on an empty folder says what it expected."""
    result = RUN.invoke(app, ["profile", "table", str(tmp_path)])
    assert result.exit_code == 2
    assert "a folder with profiles" in result.output


def test_the_table_shows_conditions_where_they_are_asked_for(tmp_path: Path) -> None:
    """A row per slice of the healthy kernel; with --conditions of every measured condition as well."""
    (tmp_path / "bf16.yaml").write_text((ROOT / "contracts/library/profiles/bf16.yaml").read_text())
    rows = {
        words: [line.split("|")[3].strip() for line in RUN.invoke(app, list(words)).stdout.splitlines()[2:]]
        for words in (
            ("profile", "table", str(tmp_path)),
            ("profile", "table", str(tmp_path), "--conditions"),
        )
    }
    healthy, every = rows.values()
    assert set(healthy) == {"healthy"}
    assert every.count("healthy") == every.count("requantise-w4") == len(healthy)


def test_a_named_dose_is_measured_alone(tmp_path: Path) -> None:
    """With --dose nothing else is measured, restarts included; a restart's condition can be named as well."""
    request = ProfileRequest(
        model="",
        kernels=(),
        backend=BackendName.VLLM,
        server=ServerRequest(),
        reference=ReferenceRequest(),
        prompts=None,
        faults=True,
        doses=("requantise-w4",),
        repeats=1,
        step_times=True,
        step_half_width=0.5,
        out=tmp_path,
        force=False,
        seed=0,
    )
    restarts = (RestartFault(name="isa-no-vnni", kind="kernel_regression", description="tests only"),)
    kernel = replace(kernel_named("bf16", VLLM_KERNELS), restart_faults=restarts)
    plan = _plan(request, kernel)
    assert [one.name for one in plan.doses] == ["requantise-w4"]
    assert plan.restarts == ()
    other = _plan(replace(request, doses=("isa-no-vnni",)), kernel)
    assert (other.doses, other.restarts) == ((), restarts)


def test_the_stated_time_and_target_are_those_that_are_measured_by(tmp_path: Path) -> None:
    """``--step-seconds`` and ``--step-target`` bound the timing, and stand in the command of the profile."""
    server = ServerRequest(url="http://127.0.0.1:9", step_seconds=60.0, step_target=0.1, step_sequences=4)
    request = ProfileRequest(
        model="",
        kernels=(),
        backend=BackendName.OPENAI,
        server=server,
        reference=ReferenceRequest(),
        prompts=None,
        faults=None,
        doses=(),
        repeats=1,
        step_times=True,
        step_half_width=0.5,
        out=tmp_path,
        force=False,
        seed=0,
    )
    plan = _plan(request, kernel_named("bf16", VLLM_KERNELS)).steps
    assert plan is not None
    assert (plan.most_seconds, plan.wanted_half_width) == (60.0, 0.1)
    assert plan.least_seconds < plan.most_seconds
    assert "--step-seconds 60 --step-target 0.1" in request.command("half")
