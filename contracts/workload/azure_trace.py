"""Loader for the public Azure LLM inference trace format: ``TIMESTAMP,ContextTokens,GeneratedTokens``.

Published with Patel et al., "Splitwise: Efficient generative LLM inference using phase splitting" (ISCA
2024). Users bring their own file; none is shipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts.errors import DocumentError, Problem
from contracts.regular_files import TEXT_BYTES, lines_of, read_regular_text

HEADER = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_MOST_PROBLEMS = 20
_MOST_DIGITS = 10
_INSTANT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9]{2}:?[0-9]{2})?",
    re.ASCII,
)
_NEXT_STEP = "correct the line, or cut the trace before it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The n requests of a trace."""

    arrived_at_s: NDArray[np.float64]  # [n] not decreasing, the first at 0
    prompt_tokens: NDArray[np.int64]  # [n] > 0
    output_tokens: NDArray[np.int64]  # [n] > 0

    def __len__(self) -> int:
        return int(self.arrived_at_s.shape[0])

    @property
    def mean_rate_rps(self) -> float:
        """Mean requests per second: gaps between requests over the length of the trace."""
        return (len(self) - 1) / float(self.arrived_at_s[-1])


def load_trace(path: Path | str, *, max_gap_s: float = 600.0) -> Trace:
    """Read the trace at ``path``.

    Args:
        path: A CSV file with the header above; timestamps like ``2023-11-16 18:17:03.9799600`` or, as in the
            traces of 2024, ``2024-05-10 00:00:00.009930+00:00``.
        max_gap_s: Longest time without a request; a longer one counts as a gap in the recording.

    Returns:
        The requests in the file's order, with times relative to the first.

    Raises:
        DocumentError: The file is missing or empty, a row is malformed, time runs backwards, or there is
            a gap. Each problem names file and line.

    """
    file = Path(path)
    rows = _Rows(file=str(path), max_gap_s=max_gap_s)
    rows.read(read_regular_text(file, TEXT_BYTES))
    return rows.trace()


def _without_utc(cell: str) -> str:
    """``cell`` without its UTC offset; ValueError for other offsets, on which numpy would only warn."""
    plain = cell.removesuffix("Z").removesuffix("+00:00")
    if "+" in plain or plain.count("-") > 2:
        raise ValueError(cell)
    return plain


class _Rows:
    """Valid rows read so far, and problems of the invalid ones."""

    def __init__(self, *, file: str, max_gap_s: float) -> None:
        self.file = file
        self.max_gap_ns = int(max_gap_s * 1e9)
        self.problems: list[Problem] = []
        self.at_ns: list[int] = []
        self.tokens: list[tuple[int, int]] = []

    def problem(
        self, line: int, path: str, expected: str, actual: str, next_step: str = _NEXT_STEP
    ) -> Problem:
        return Problem(self.file, line, path, expected, actual, next_step)

    def read(self, text: str) -> None:
        lines = (line.removesuffix("\r") for line in lines_of(text.rstrip()))
        header = next(lines)
        if tuple(header.split(",")) != HEADER:
            actual = repr(header[:80]) if text else "an empty file"
            raise DocumentError([self.problem(1, "", f"the header {','.join(HEADER)}", actual)])
        for number, line in enumerate(lines, start=2):
            self._row(number, line)
            if len(self.problems) >= _MOST_PROBLEMS:
                break

    def _row(self, number: int, line: str) -> None:
        cells = line.split(",")
        if len(cells) != len(HEADER):
            self.problems.append(self.problem(number, "", "3 columns", f"{len(cells)} in {line[:80]!r}"))
            return
        at_ns = self._instant(number, cells[0])
        tokens = [self._count(number, name, cell) for name, cell in zip(HEADER[1:], cells[1:], strict=True)]
        if at_ns is None or None in tokens:
            return
        self.at_ns.append(at_ns)
        self.tokens.append((tokens[0] or 0, tokens[1] or 0))

    def _instant(self, number: int, cell: str) -> int | None:
        try:
            if _INSTANT.fullmatch(cell.strip()) is None:
                raise ValueError(cell)
            at_ns = int(np.datetime64(_without_utc(cell.strip()), "ns").astype(np.int64))
        except (ValueError, OverflowError):
            at_ns = np.iinfo(np.int64).min
        if at_ns == np.iinfo(np.int64).min:
            expected = "a timestamp like 2023-11-16 18:17:03.9799600"
            self.problems.append(self.problem(number, HEADER[0], expected, f"{cell!r:.80}"))
            return None
        return at_ns if self._in_order(number, cell, at_ns) else None

    def _in_order(self, number: int, cell: str, at_ns: int) -> bool:
        gap_ns = at_ns - self.at_ns[-1] if self.at_ns else 0
        if gap_ns < 0:
            expected = "a time not before the previous row's"
            self.problems.append(self.problem(number, HEADER[0], expected, cell, "sort the rows by time"))
        elif gap_ns > self.max_gap_ns:
            expected = f"a gap of at most {self.max_gap_ns / 1e9:g} s"
            actual = f"{gap_ns / 1e9:g} s without a request"
            self.problems.append(
                self.problem(number, HEADER[0], expected, actual, "cut the trace at the gap")
            )
        return 0 <= gap_ns <= self.max_gap_ns

    def _count(self, number: int, name: str, cell: str) -> int | None:
        text = cell.strip()
        if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and 0 < int(text) < 2**31:
            return int(text)
        self.problems.append(self.problem(number, name, "a whole number of tokens > 0", f"{cell!r:.80}"))
        return None

    def trace(self) -> Trace:
        if self.problems:
            raise DocumentError(self.problems)
        if len(self.at_ns) < 2 or self.at_ns[-1] == self.at_ns[0]:
            rows = f"{len(self.at_ns)} rows spanning no time"
            raise DocumentError([self.problem(0, "", "two requests at different times", rows)])
        tokens = np.array(self.tokens, np.int64)
        return Trace(
            arrived_at_s=(np.array(self.at_ns, np.int64) - self.at_ns[0]) / 1e9,
            prompt_tokens=tokens[:, 0].copy(),
            output_tokens=tokens[:, 1].copy(),
        )
