"""Irregular, endless or inflating files: refused by every reader, at once, with exit code 2."""

from __future__ import annotations

import io
import os
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from contracts.assess.observation_log import load_log
from contracts.assess.register import read_register
from contracts.assess.samples import load_samples
from contracts.errors import DocumentError
from contracts.loading.loader import load_document
from contracts.regular_files import TEXT_BYTES, UNPACKED_BYTES, hash_regular, read_regular
from contracts.workload.azure_trace import load_trace
from live.measure import reference_store
from live.measure.prompts import load_prompts
from policies.offline.transitions import load_transitions
from scripts.cli.main import app
from scripts.cli.measuring.request import read_key
from scripts.cli.run_reports.decision_log import read_decisions
from scripts.sb3 import bytes_of_zip
from tests.support.fleets.synthetic import write_world
from tests.support.paths import ROOT

SHIPPED_MANIFEST = ROOT / "contracts" / "library" / "policies" / "routing.yaml"


def stored_reference(path: Path) -> object:
    """A reference of no prompts."""
    return reference_store._read(path, [])


READERS: dict[str, Callable[[Path], object]] = {
    "documents": load_document,
    "traces": load_trace,
    "samples": load_samples,
    "logs": load_log,
    "prompts": load_prompts,
    "decision logs": read_decisions,
    "registers": read_register,
    "transitions": load_transitions,
    "policies of another library": bytes_of_zip,
    "stored references": stored_reference,
    "keys": lambda path: read_key("--api-key", "", path),
    "hashes": hash_regular,
}


def selvage(*arguments: str | Path) -> Result:
    """``selvage ARGUMENTS``."""
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.mark.parametrize("reader", READERS)
def test_pipes_devices_and_folders_are_refused_at_once(reader: str, tmp_path: Path) -> None:
    """Neither a FIFO without a writer nor an endless device is read, and none is waited for."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), Path("/dev/null"), tmp_path):
        with pytest.raises((DocumentError, OSError), match=r"pipe|device|folder"):
            READERS[reader](path)


@pytest.mark.parametrize("reader", sorted(set(READERS) - {"registers"}))  # a missing one is empty
def test_names_that_no_file_can_have_are_refused(reader: str) -> None:
    """A NUL in a name, and a name that is too long, count as missing."""
    for name in ("a\0b", "x" * 5000):
        with pytest.raises((DocumentError, OSError)):
            READERS[reader](Path(name))


def test_a_sparse_file_beyond_the_cap_is_read_no_further(tmp_path: Path) -> None:
    """A terabyte that takes no room on disk costs no more than the cap in memory."""
    path = tmp_path / "large"
    with path.open("wb") as stream:
        stream.truncate(2**40)
    with pytest.raises(DocumentError, match=f"at most {TEXT_BYTES}"):
        read_regular(path, TEXT_BYTES)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2**21


def bomb(arrays: tuple[str, ...], size: int) -> bytes:
    """An archive whose ``arrays`` unpack to ``size`` bytes each."""
    buffer, header = io.BytesIO(), io.BytesIO()
    shape = {"descr": "|u1", "fortran_order": False, "shape": (size,)}
    np.lib.format.write_array_header_1_0(header, shape)
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in arrays:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(header.getvalue())
                for _ in range(size // 2**20):
                    member.write(bytes(2**20))
    return buffer.getvalue()


def test_an_archive_that_inflates_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    """A few hundred kilobytes that unpack beyond the cap stop samples and transitions alike."""
    (tmp_path / "bomb.npz").write_bytes(bomb(("values",), UNPACKED_BYTES + 2**20))
    assert (tmp_path / "bomb.npz").stat().st_size < 2**20
    for read in (load_samples, load_transitions, stored_reference, bytes_of_zip):
        with pytest.raises(DocumentError, match="unpacks to"):
            read(tmp_path / "bomb.npz")


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 800 * 2**20], ids=["empty", "inflating"])
def test_damaged_logs_are_refused_before_anything_is_loaded(size: int, tmp_path: Path) -> None:
    """``offline evaluate`` reports the problem without torch, which takes long to import."""
    (tmp_path / "a.npz").write_bytes(bomb(("observation",), size) if size else b"")
    words = [sys.executable, "-X", "importtime", "-m", "scripts.cli.main", "offline", "evaluate"]
    given = [str(tmp_path), "package:contracts/library/policies/routing.yaml"]
    done = subprocess.run([*words, *given], cwd=ROOT, capture_output=True, text=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert done.returncode == 2, done.stderr
    assert "a.npz" in done.stderr
    assert "policies.offline.transitions" in imported
    assert not imported & {"torch", "numba", "scipy.stats", "gymnasium"}


def test_names_without_length_do_not_run_for_ever(tmp_path: Path) -> None:
    """Thousands of millions of empty names take no bytes, and are refused all the same."""
    header = b"{'descr': '<U0', 'fortran_order': False, 'shape': (3000000000,), }"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in (
            "condition_names",
            "prompt_ids",
            "prompt_slice",
            "prompt_split",
            "metric_names",
            "values",
        ):
            padded = header + b" " * (117 - len(header)) + b"\n"
            archive.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded)
    (tmp_path / "empty.npz").write_bytes(buffer.getvalue())
    with pytest.raises(DocumentError):
        load_samples(tmp_path / "empty.npz")


def test_names_of_what_is_no_character_are_refused(tmp_path: Path) -> None:
    """A number beyond Unicode in a text array would end Python's own string functions."""
    words: dict[str, Any] = {
        name: np.array(["a"]) for name in ("condition_names", "prompt_slice", "metric_names")
    }
    split = np.frombuffer((0x00FFFFFF).to_bytes(4, "little"), dtype="<U1")
    numbers: dict[str, Any] = {"prompt_ids": np.array([0]), "values": np.zeros((1, 1, 1, 1))}
    np.savez(tmp_path / "x.npz", prompt_split=split, **words, **numbers)
    with pytest.raises(DocumentError, match="no character"):
        load_samples(tmp_path / "x.npz")


@pytest.mark.parametrize("content", [b"", b"PK", b"\x93NUMPY", b"not an archive"])
def test_truncated_archives_are_no_end_of_file(content: bytes, tmp_path: Path) -> None:
    """An empty or cut-off npz is refused by name, wherever arrays are read."""
    (tmp_path / "x.npz").write_bytes(content)
    for read in (load_samples, load_transitions):
        with pytest.raises(DocumentError, match=r"x\.npz"):
            read(tmp_path / "x.npz")


def test_digits_without_end_are_no_number(tmp_path: Path) -> None:
    """Traces, prompts, logs and decision logs refuse numbers that Python would not even convert."""
    digits = "9" * 6000
    lines: dict[Any, str] = {
        load_trace: f"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,{digits},1\n",
        load_prompts: f'{{"id": {digits}, "slice": "code", "token_ids": [1, 2]}}\n',
        load_log: f'{{"slice": "code", "column": "latency_ms", "value": {digits}}}\n',
        read_decisions: f'{{"now_s": {digits}}}\n',
    }
    for read, text in lines.items():
        (tmp_path / "file").write_text(text, encoding="utf-8")
        with pytest.raises(DocumentError, match=r"file:[12]"):
            read(tmp_path / "file")


def test_prompts_are_split_on_newlines_alone(tmp_path: Path) -> None:
    """A separator in a text ends no line; keys stand once; ids are neither negative nor beyond 64 bits."""
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"slice": "code", "text": "a\u2028b"}\n', encoding="utf-8")
    assert [prompt.text for prompt in load_prompts(path)] == ["a\u2028b"]
    for bad in ('"id": -5', '"id": 9223372036854775808', '"slice": "prose"'):
        path.write_text(f'{{"slice": "code", "text": "a", {bad}}}\n', encoding="utf-8")
        with pytest.raises(DocumentError, match=r"prompts\.jsonl:1"):
            load_prompts(path)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("failed", -1),
        ("failed", 0.5),
        ("latency_ms", -0.1),
        ("kl_mean@full_vocab", -0.001),
        ("tv_mean@full_vocab", 1.1),
        ("kv_used_ratio", 2),
        ("token_prob_error@sampled", 0.9),
        ("ece_gap", 0.1),
    ],
)
def test_values_that_a_column_cannot_have_are_refused(column: str, value: float, tmp_path: Path) -> None:
    """A value outside its column's domain means a broken exporter, reported with its line."""
    path = tmp_path / "log.jsonl"
    good = '{"slice": "code", "column": "latency_ms", "value": 1}\n'
    path.write_text(f'{good}{{"slice": "code", "column": "{column}", "value": {value}}}\n', encoding="utf-8")
    with pytest.raises(DocumentError, match=rf"log\.jsonl:2.*{column.partition('@')[0]}"):
        load_log(path)


@pytest.mark.parametrize(
    "uri", ["http://[x", "file://elsewhere/x.yaml", "a\0b", "package:contracts/\x1b[2J", "file:///%00"]
)
def test_hostile_uris_are_refused(uri: str, tmp_path: Path) -> None:
    """A URI that cannot be split, names another host or has control characters is bad input, told in
    printable words.
    """
    done = selvage("simulate", uri)
    assert done.exit_code == 2, done.output
    assert "\x1b" not in done.output
    assert "error: " in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "SCENARIO", "--seeds", "1000000000000"],
        ["e5", "--out", "OUT", "--seeds", "1000000000000"],
        ["explain", "SCENARIO", "--at", "nan"],
        ["explain", "LOG"],
        ["simulate", "SCENARIO", "--policy", "learned:onnx=LOG"],
        ["simulate", "SCENARIO", "--policy", "learned:onnx=/dev/zero"],
        ["train", "--out", "OUT", "--seeds", "0-99999999999"],
        ["train", "--out", "OUT", "--jobs", "0"],
        ["train", "--out", "OUT", "--updates", "-1"],
        ["tune", "hysteresis", "--out", "OUT", "--horizon-s", "nan"],
        ["tune", "hysteresis", "--out", "OUT", "--seed", "-1"],
        ["policy", "certify", "hysteresis", "--quiet-days", "nan"],
        ["offline", "record", "SCENARIO", "--out", "OUT", "--explore", "nan"],
        ["contract", "bounds", "--distance", "1", "--distance", "inf"],
    ],
)
def test_absurd_arguments_are_bad_input(arguments: list[str], tmp_path: Path) -> None:
    """Impossible work is refused before it begins."""
    log = tmp_path / "x.jsonl"
    log.write_text('{"now_s": 1, "moves": [3], "quarantined": [], "policy_id": "a", "plan_version": 1}\n')
    places = {"SCENARIO": str(write_world(tmp_path)), "OUT": str(tmp_path / "out"), "LOG": str(log)}
    words = [places.get(word, word.replace("=LOG", f"={log}")) for word in arguments]
    done = selvage(*words)
    assert done.exit_code == 2, done.output


@pytest.mark.slow
@pytest.mark.parametrize("most_kib", [2, 16])
def test_a_disk_that_is_full_leaves_no_half_of_an_artefact(most_kib: int, tmp_path: Path) -> None:
    """If a file cannot be written completely, an export is refused and leaves no manifest, nor a part."""
    words = [sys.executable, "-m", "scripts.cli.main", "policy", "export", str(SHIPPED_MANIFEST)]
    given = ["--meta", "package:contracts/library/meta-contract.yaml", "--out", str(tmp_path / "out")]

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_kib * 1024, most_kib * 1024))

    done = subprocess.run(
        [*words, *given],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        preexec_fn=limited,
    )
    assert done.returncode == 2, done.stderr
    assert "File too large" in done.stderr
    assert not [path for path in (tmp_path / "out").iterdir() if path.suffix != ".onnx"]
