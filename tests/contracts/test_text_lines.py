"""Lines are those of ``split``, one at a time."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.assess.observation_log import load_log
from contracts.assess.register import read_register
from contracts.errors import DocumentError
from contracts.loading.loader import load_document
from contracts.regular_files import lines_of
from contracts.workload.azure_trace import load_trace
from live.measure.prompts import load_prompts
from scripts.cli.run_reports.decision_log import read_decisions
from tests.support.paths import ROOT


@given(st.text(alphabet="ab\n\r\x0b\u2028"))
def test_lines_are_those_of_split(text: str) -> None:
    """Only newlines split."""
    assert list(lines_of(text)) == text.split("\n")


LOG = "".join(f'{{"slice": "code", "column": "latency_ms", "value": {value}}}\n' for value in range(3))
PROMPTS = "".join(f'{{"slice": "chat", "text": "caf\u00e9 {i}"}}\n' for i in range(3))
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:17:0{second},48,10\n" for second in range(3)
)
POOL = (ROOT / "contracts" / "library" / "serving-pool.yaml").read_text(encoding="utf-8")
READ: dict[str, tuple[str, Callable[[Path], object]]] = {
    "log": (LOG, lambda path: load_log(path).columns[0].values.tolist()),
    "prompts": (PROMPTS, load_prompts),
    "trace": (TRACE, lambda path: load_trace(path).arrived_at_s.tolist()),
    "document": (POOL, load_document),
}


@pytest.mark.parametrize("reader", READ)
def test_line_ends_of_any_editor_are_read_alike(reader: str, tmp_path: Path) -> None:
    """A byte order mark, CRLF, CR alone, no final newline and blank lines change nothing that is read."""
    text, read = READ[reader]
    file = tmp_path / "file"
    file.write_bytes(text.encode())
    plain = read(file)
    blank = text.replace("\n", "\n\n \n") if reader in ("log", "prompts") else text + "\n \n"
    for spelt in ("\ufeff" + text, text.replace("\n", "\r\n"), text.replace("\n", "\r"), text[:-1], blank):
        file.write_bytes(spelt.encode())
        assert read(file) == plain


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (lambda text: text.encode("utf-16"), ":1: expected UTF-8 text, got UTF-16; .*save it as UTF-8"),
        (lambda text: text.encode("utf-16-le"), ":1: expected UTF-8 text, got UTF-16; .*save it as UTF-8"),
        (lambda text: text.encode() + b"\0", ":{end}: expected UTF-8 text, got a NUL byte at offset"),
        (lambda text: text.encode() + b"\xe9\n", ":{end}: expected UTF-8 text, got byte 0xe9 at offset"),
        (lambda text: text.encode() + b"\x1a", ":{end}"),
    ],
)
@pytest.mark.parametrize("reader", READ)
def test_files_that_are_no_text_are_reported_with_a_line(
    reader: str, content: Callable[[str], bytes], told: str, tmp_path: Path
) -> None:
    """UTF-16, leftovers of a power cut and the end mark of DOS: the line, and what to do."""
    text, read = READ[reader]
    (tmp_path / "file").write_bytes(content(text))
    with pytest.raises(DocumentError, match=told.format(end=text.count("\n") + 1)):
        read(tmp_path / "file")


@pytest.mark.parametrize("line", ["", "{}"])
@pytest.mark.parametrize("read", [load_log, read_register, read_decisions, load_trace])
def test_millions_of_short_lines_stay_within_a_memory_bound(
    line: str, read: Callable[[Path], object], tmp_path: Path
) -> None:
    """A list of all lines would take more."""
    file = tmp_path / "many"
    file.write_text(f"{line}\n" * 3_000_000)
    tracemalloc.start()
    try:
        with contextlib.suppress(DocumentError):
            assert not read(file)  # a decision log may be empty
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most_bytes < 100_000_000  # of which 64 MiB are the read buffer
