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
from contracts.regular_files import lines_of
from contracts.workload.azure_trace import load_trace
from scripts.cli.telling.decision_log import read_decisions


@given(st.text(alphabet="ab\n\r\x0b\u2028"))
def test_lines_are_those_of_split(text: str) -> None:
    """Newlines split, and nothing else does."""
    assert list(lines_of(text)) == text.split("\n")


@pytest.mark.parametrize("line", ["", "{}"])
@pytest.mark.parametrize("read", [load_log, read_register, read_decisions, load_trace])
def test_millions_of_short_lines_are_refused_or_nothing_within_a_bound(
    line: str, read: Callable[[Path], object], tmp_path: Path
) -> None:
    """A list of the lines alone would take more."""
    file = tmp_path / "many"
    file.write_text(f"{line}\n" * 3_000_000)
    tracemalloc.start()
    try:
        with contextlib.suppress(DocumentError):
            assert not read(file)  # a decision log may be empty
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most_bytes < 100_000_000  # of which 64 MiB are the room that is read into
