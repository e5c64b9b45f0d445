"""The commands that judge, propose and bound: exit codes, same bytes, no partial files."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from contracts.documents.contract import KernelContract
from contracts.loading.loader import dump_text, load_as
from scripts.cli.main import app
from tests.support.documents.contracts_made import contract, kernel_samples, profile_files

EVALUATE = ("contract", "evaluate")


def run(*words: str | Path) -> Result:
    """The command line with ``words``."""
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A measured bfloat16 kernel, healthy and requantised."""
    return profile_files(tmp_path, kernel_samples())


def written(folder: Path, threshold: float, metric: str = "kl_mean") -> Path:
    """A contract file with one clause."""
    path = folder / "contract.yaml"
    path.write_text(dump_text(contract({"metric": metric, "threshold": threshold})))
    return path


@pytest.mark.parametrize(
    ("condition", "split", "code"),
    [("healthy", "all", 0), ("requantise-w4", "all", 1), ("slow", "all", 2), ("healthy", "train", 2)],
)
def test_exit_codes(tmp_path: Path, profile: Path, condition: str, split: str, code: int) -> None:
    """Healthy prompts exit 0, a measured fault 1, an unknown condition or split 2."""
    made = written(tmp_path, 5e-4)
    assert run(*EVALUATE, made, profile, "--condition", condition, "--split", split).exit_code == code


def test_too_few_samples_exit_inconclusive(tmp_path: Path) -> None:
    """Too few prompts for a verdict: exit 3."""
    few = profile_files(tmp_path, kernel_samples(prompts=3))
    assert run(*EVALUATE, written(tmp_path, 5e-4), few).exit_code == 3


def test_values_that_cannot_be_read_are_told_and_never_pass(tmp_path: Path) -> None:
    """NaN in a profile: their number by metric and slice, and exit 3 if they could decide."""
    samples = kernel_samples()
    values = samples.values.copy()
    values[0, samples.rows("probe", "prose")[:5], :, samples.metric_names.index("kl_mean@full_vocab")] = (
        np.nan
    )
    holes = profile_files(tmp_path, replace(samples, values=values))
    shown = run(*EVALUATE, written(tmp_path, 5e-4), holes)
    assert shown.exit_code == 3, shown.output
    assert "unreadable: kl_mean@full_vocab on prose: 5 of 192 prompts" in shown.output
    found = json.loads(run(*EVALUATE, tmp_path / "contract.yaml", holes, "--json").stdout)
    assert found["unreadable"] == [
        {"column": "kl_mean@full_vocab", "count": 5, "prompts": 192, "slice": "prose"}
    ]
    assert {each["slice"]: each["verdict"] for each in found["clauses"]} == {
        "code": "pass",
        "prose": "inconclusive",
    }


def test_json_is_sorted_and_the_same_each_time(tmp_path: Path, profile: Path) -> None:
    """Two evaluations of the same samples print the same bytes, and --out holds them too."""
    words = (*EVALUATE, written(tmp_path, 5e-4), profile, "--json", "--out", tmp_path / "out.json")
    first, second = run(*words), run(*words)
    assert first.stdout == second.stdout == (tmp_path / "out.json").read_text()
    found = json.loads(first.stdout)
    assert list(found) == sorted(found)
    assert (found["verdict"], found["convergence"]) == ("pass", "holds")
    assert {entry["slice"] for entry in found["clauses"]} == {"code", "prose"}


def test_violations_name_their_possible_sources(tmp_path: Path, profile: Path) -> None:
    """A failed clause of a profile lists the sources that could explain it."""
    shown = run(*EVALUATE, written(tmp_path, 5e-4), profile, "--condition", "requantise-w4", "--json")
    found = json.loads(shown.stdout)["attributions"]
    assert {each["slice"] for each in found} == {"code", "prose"}
    assert found[0]["beyond_certified"]
    assert [each["source"]["source"] for each in found[0]["candidates"]] == ["batch shape"]
    assert "precision" in [each["source"]["source"] for each in found[0]["excluded"]]


def test_a_log_and_an_archive_are_judged_like_a_profile(tmp_path: Path, profile: Path) -> None:
    """The archive alone and a log of the same numbers give the verdict of the profile."""
    made = written(tmp_path, 5e-4)
    samples = kernel_samples()
    log = tmp_path / "units.jsonl"
    lines = [
        {"slice": place, "column": "kl_mean@full_vocab", "value": float(value)}
        for place, value in zip(samples.prompt_slice, samples.values[0, :, 0, 0], strict=True)
    ]
    log.write_text("\n".join(map(json.dumps, lines)))
    found = [
        json.loads(run(*EVALUATE, made, source, "--json").stdout)["clauses"]
        for source in (profile, tmp_path / "kernel.npz", log)
    ]
    assert found[0] == found[1] == found[2]


def test_proposals_are_kept_by_their_kernel(tmp_path: Path, profile: Path) -> None:
    """A proposed file loads, its kernel passes it, its fault fails it; serving clauses stay open;
    an edited file stays unless ``--force`` is given.
    """
    target = tmp_path / "proposed.yaml"
    target.write_text("written by hand")
    words = ("contract", "propose", profile, "--name", "mine", "--out", target)
    assert "name another, or add --force" in run(*words).stderr
    assert target.read_text() == "written by hand"
    assert run(*words, "--force").exit_code == 0
    assert load_as(KernelContract, target).metadata.name == "mine"
    assert run(*EVALUATE, target, profile).exit_code == 3
    waived = ("--waive", "O-fingerprint=no server runs yet")
    assert run(*EVALUATE, target, profile, *waived).exit_code == 0
    assert run(*EVALUATE, target, profile, "--condition", "requantise-w4").exit_code == 1


def two_sided(folder: Path) -> Path:
    """A contract with a hard numeric clause and a failure rate, hard too."""
    rate = {"metric": "failure_rate", "threshold": 0.02, "estimator": "none", "family": "R"}
    path = folder / "contract.yaml"
    path.write_text(dump_text(contract({"metric": "kl_mean", "threshold": 5e-4}, rate)))
    return path


def request_log(folder: Path, count: int) -> Path:
    """A log of ``count`` requests on each slice, none of which failed."""
    log = folder / "requests.jsonl"
    rows = [{"slice": name, "column": "failed", "value": 0} for name in ("code", "prose")]
    log.write_text("\n".join(json.dumps(row) for row in rows * count))
    return log


def test_a_profile_and_a_log_meet_in_one_verdict(tmp_path: Path, profile: Path) -> None:
    """Each input covers the gaps of the other; the table names the missing parts, the JSON the inputs."""
    made = two_sided(tmp_path)
    alone = run(*EVALUATE, made, profile)
    assert alone.exit_code == 3
    assert "verdict Inconclusive" in alone.stdout
    assert "c1 on code, prose: no observations of failed; must be shown or waived" in alone.stdout
    both = run(*EVALUATE, made, profile, request_log(tmp_path, 200), "--json")
    assert both.exit_code == 0
    found = json.loads(both.stdout)
    assert (found["outcome"], found["verdict"], found["exit_code"]) == ("Successful", "pass", 0)
    assert [each["condition"] for each in found["inputs"]] == ["healthy", "logged"]
    assert run(*EVALUATE, made, profile, request_log(tmp_path, 20)).exit_code == 3
    assert run(*EVALUATE, made, profile, profile).exit_code == 2


def test_waivers_are_told(tmp_path: Path, profile: Path) -> None:
    """A waived clause leaves exit code 0, and its reason stands in table and JSON."""
    words = (*EVALUATE, two_sided(tmp_path), profile, "--waive", "c1=no traffic yet")
    shown = run(*words)
    assert shown.exit_code == 0
    assert "waived: no traffic yet" in shown.stdout
    found = json.loads(run(*words, "--json").stdout)
    assert found["waivers"] == [{"clause_id": "c1", "slice": "*", "reason": "no traffic yet"}]
    assert run(*EVALUATE, two_sided(tmp_path), profile, "--waive", "c9=x").exit_code == 2


@pytest.mark.parametrize(
    ("condition", "waive", "counts"),
    [
        ("healthy", (), (4, 0, 2, 0)),
        ("healthy", ("--waive", "c1=no traffic yet"), (4, 0, 0, 2)),
        ("requantise-w4", (), (4, 2, 2, 0)),
    ],
)
def test_junit_counts_what_the_verdict_rests_on(
    tmp_path: Path, profile: Path, condition: str, waive: tuple[str, ...], counts: tuple[int, ...]
) -> None:
    """Broken clauses are failures, open ones errors, waived ones skipped; the outcome is a property."""
    out = tmp_path / "junit.xml"
    made = two_sided(tmp_path)
    result = run(*EVALUATE, made, profile, "--condition", condition, *waive, "--junit", out, "--json")
    suite = ElementTree.parse(out).getroot()
    assert tuple(int(suite.get(n, "")) for n in ("tests", "failures", "errors", "skipped")) == counts
    told = suite.find("properties/property")
    assert told is not None
    assert told.get("value") == json.loads(result.stdout)["outcome"]


def test_bad_input_is_an_error_in_every_format(tmp_path: Path) -> None:
    """Exit 2 comes with the outcome Error in JSON and JUnit, and with the message on stderr."""
    out = tmp_path / "junit.xml"
    result = run(*EVALUATE, written(tmp_path, 5e-4), tmp_path / "none.npz", "--json", "--junit", out)
    assert result.exit_code == 2
    assert json.loads(result.stdout)["outcome"] == "Error"
    assert "none.npz" in result.stderr
    assert ElementTree.parse(out).getroot().get("errors") == "1"


#: Modules that take long to import, and that a gate in a pipeline does not need.
HEAVY = (
    *("simulator", "controller", "policies", "faults", "live", "k8s"),
    *("numba", "llvmlite", "scipy", "pandas", "onnx", "onnxruntime", "torch", "simpy", "gymnasium"),
    *("matplotlib", "jinja2", "httpx"),
)


def test_the_gate_imports_no_engine(tmp_path: Path, profile: Path) -> None:
    """``contract evaluate`` runs on contracts, numpy and pydantic alone: nothing else is imported."""
    code = f"""
import sys
from scripts.cli.main import app
words = {["contract", "evaluate", str(written(tmp_path, 5e-4)), str(profile)]!r}
try:
    app(words)
except SystemExit as end:
    assert end.code == 0, end.code
loaded = {{name.partition(".")[0] for name in sys.modules}}
heavy = loaded & {set(HEAVY)!r}
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_bounds_stand_beside_measurements(tmp_path: Path, profile: Path) -> None:
    """With samples every slice has rows with a measured value; without, the chain stands alone."""
    made = written(tmp_path, 0.2, "logit_linf_p95")
    found = json.loads(run("contract", "bounds", made, "--samples", profile, "--json").stdout)["bounds"]
    assert {row["scope"] for row in found} == {"c0", "code", "prose"}
    assert all(row["measured"] is not None for row in found)
    alone = json.loads(run("contract", "bounds", "--distance", "0.5", "--json").stdout)["bounds"]
    assert {row["measured"] for row in alone} == {None}
    assert "sharp" in run("contract", "bounds").stdout


def test_tables_say_what_json_says(tmp_path: Path, profile: Path) -> None:
    """The tables show the verdict, the convergence and each clause."""
    shown = run(*EVALUATE, written(tmp_path, 5e-4), profile).stdout
    assert "verdict Successful (2 pass)" in shown
    assert "contracted convergence: holds" in shown


@pytest.mark.parametrize(
    "words",
    [
        (*EVALUATE, "none.yaml", "none.npz"),
        (*EVALUATE, "{contract}", "none.npz"),
        (*EVALUATE, "{contract}", "{contract}"),
        (*EVALUATE, "{contract}", "units.csv"),
        (*EVALUATE, "{contract}", "{profile}", "--confidence", "2"),
        ("contract", "propose", "{profile}", "--margin", "0"),
        ("contract", "propose", "{profile}", "--name", "Not A Name"),
        ("contract", "bounds", "--distance", "-1"),
        ("contract", "bounds", "--temperature", "0"),
        (*EVALUATE, "{contract}", "{profile}", "--out", "/nowhere/out.json"),
    ],
)
def test_bad_input_exits_two(tmp_path: Path, profile: Path, words: tuple[str, ...]) -> None:
    """Missing files, wrong kinds and impossible options exit 2 with one line of explanation."""
    names = {"contract": str(written(tmp_path, 5e-4)), "profile": str(profile)}
    result = run(*(word.format(**names) for word in words))
    assert result.exit_code == 2
    assert "expected" in result.stderr


def test_tampered_samples_are_refused(tmp_path: Path, profile: Path) -> None:
    """Samples that are not the ones a profile pins are bad input, not a verdict."""
    archive = tmp_path / "kernel.npz"
    archive.write_bytes(archive.read_bytes() + b"\0")
    result = run(*EVALUATE, written(tmp_path, 5e-4), profile)
    assert result.exit_code == 2
    assert "sha256" in result.stderr


def test_a_name_that_no_contract_can_have_is_refused(profile: Path, tmp_path: Path) -> None:
    """``propose --name`` with a bad name exits 2 with one line that says where, and writes nothing."""
    result = run("contract", "propose", profile, "--name", "Bad Name", "--out", tmp_path / "made.yaml")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "propose name" in result.stderr
    assert not (tmp_path / "made.yaml").exists()


def test_undecided_clauses_say_why(tmp_path: Path) -> None:
    """The table names what is inconclusive with its reason, in lines that do not wrap the clause's name."""
    few = profile_files(tmp_path, kernel_samples(prompts=3))
    shown = run(*EVALUATE, written(tmp_path, 5e-4), few).stdout
    assert "inconclusive: " in shown
    assert "observations; at least" in shown
