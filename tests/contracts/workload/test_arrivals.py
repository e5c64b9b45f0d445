"""Arrival processes, length laws and the trace loader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import DocumentError
from contracts.workload.arrivals import (
    GapProcess,
    LengthLaw,
    RateProfile,
    TraceProcess,
    constant_rate,
    diurnal_rate,
)
from contracts.workload.azure_trace import Trace, load_trace
from tests.support.paths import DATA

SYNTHETIC = DATA / "azure_trace_synthetic.csv"
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@given(
    pieces=st.lists(st.tuples(st.floats(0.1, 100.0), st.floats(0.01, 1e4)), min_size=1, max_size=8),
    t_s=st.floats(0.0, 1000.0),
)
def test_clock_inverts_the_expected_count(pieces: list[tuple[float, float]], t_s: float) -> None:
    """clock_s(expected(t)) = t for any rate profile."""
    starts = np.concatenate([[0.0], np.cumsum([width for width, _ in pieces])[:-1]])
    profile = RateProfile(starts_at_s=starts, rate_rps=np.array([rate for _, rate in pieces]))
    back = profile.clock_s(np.array([profile.expected(t_s)]))[0]
    np.testing.assert_allclose(back, t_s, rtol=1e-9, atol=1e-7)


def test_poisson_counts_have_equal_mean_and_variance() -> None:
    """Counts per second of a Poisson process: mean and variance are the rate within four standard errors."""
    times = constant_rate(20.0).clock_s(GapProcess(np.random.default_rng(1)).take(80_000))
    counts = np.bincount(times.astype(np.int64))[:-1]
    n = counts.shape[0]
    assert abs(counts.mean() - 20.0) < 4.0 * np.sqrt(20.0 / n)
    assert abs(counts.var() - 20.0) < 4.0 * np.sqrt((2.0 * 20.0**2 + 20.0) / n)


@pytest.mark.parametrize("gap_cv", [0.3, 1.0, 3.0])
def test_gaps_have_the_declared_variation(gap_cv: float) -> None:
    """Mean gap 1 and the declared coefficient of variation, within four standard errors."""
    gaps = np.diff(GapProcess(np.random.default_rng(2), gap_cv=gap_cv).take(200_001))
    assert abs(gaps.mean() - 1.0) < 4.0 * gap_cv / np.sqrt(200_000)
    np.testing.assert_allclose(gaps.std(), gap_cv, rtol=0.05)


def test_parts_of_a_process_are_the_process() -> None:
    """Taking 10 and then 90 arrivals gives the same 100, up to the round-off of one sum."""
    whole = GapProcess(np.random.default_rng(3)).take(100)
    process = GapProcess(np.random.default_rng(3))
    np.testing.assert_allclose(np.concatenate([process.take(10), process.take(90)]), whole, rtol=1e-13)


def test_diurnal_rate_has_its_mean_and_its_swing() -> None:
    """Over whole periods the expected count is the mean rate's; the peak is mean * (1 + amplitude)."""
    profile = diurnal_rate(50.0, amplitude_ratio=0.6, period_s=240.0, horizon_s=960.0)
    np.testing.assert_allclose(profile.expected(960.0), 50.0 * 960.0, rtol=1e-9)
    np.testing.assert_allclose(profile.rate_rps.max(), 80.0, rtol=2e-3)
    assert profile.at(60.0) > profile.at(180.0)


def test_a_surge_multiplies_the_rate_while_it_lasts() -> None:
    """Between its start and end the rate is multiplied by the factor, elsewhere unchanged."""
    profile = constant_rate(10.0).scaled(5.0, 8.0, 3.0)
    assert [profile.at(t) for t in (0.0, 4.99, 5.0, 7.99, 8.0, 99.0)] == [10.0, 10.0, 30.0, 30.0, 10.0, 10.0]
    np.testing.assert_allclose(profile.expected(10.0), 160.0)
    assert constant_rate(10.0).scaled(0.0, np.inf, 2.0).at(3.0) == 20.0


def test_log_normal_lengths_have_the_declared_mean() -> None:
    """The mean of the counts is the law's, half a token lower for rounding down, within four errors."""
    law = LengthLaw(mean=512.0, sigma=0.8, high=10**6)
    sample = law.sample(np.random.default_rng(4), 400_000)
    assert abs(sample.mean() - 511.5) < 4.0 * sample.std() / np.sqrt(400_000)


def test_lengths_stay_in_their_bounds() -> None:
    """Clipped at low and high; a law without spread is a constant."""
    sample = LengthLaw(mean=100.0, sigma=2.0, low=5, high=200).sample(np.random.default_rng(5), 10_000)
    assert (sample.min(), sample.max()) == (5, 200)
    assert set(LengthLaw(mean=128.0).sample(np.random.default_rng(5), 10).tolist()) == {128}


@pytest.mark.parametrize("mean", [0.0, -1.0, float("nan")])
def test_impossible_lengths_are_refused(mean: float) -> None:
    """A mean that is not positive is an error."""
    with pytest.raises(ValueError, match="mean > 0"):
        LengthLaw(mean=mean)


def test_the_loader_reads_the_public_format() -> None:
    """Seven fractional digits, times from the first request, tokens as written."""
    trace = load_trace(SYNTHETIC)
    assert len(trace) == 12
    np.testing.assert_allclose(trace.arrived_at_s[:3], [0.0, 0.0520000, 0.6985710], atol=1e-9)
    assert trace.prompt_tokens[:3].tolist() == [4808, 3180, 110]
    assert trace.output_tokens[:3].tolist() == [10, 8, 27]


def test_a_trace_repeats_at_its_own_rate() -> None:
    """Repeated, the trace keeps its mean rate and its rows."""
    trace = Trace(
        arrived_at_s=np.array([0.0, 1.0, 4.0]),
        prompt_tokens=np.array([1, 2, 3]),
        output_tokens=np.ones(3, np.int64),
    )
    process = TraceProcess(trace)
    counts, rows = process.take(7)
    assert rows.tolist() == [0, 1, 2, 0, 1, 2, 0]
    np.testing.assert_allclose(constant_rate(trace.mean_rate_rps).clock_s(counts), [0, 1, 4, 6, 7, 10, 12])


@pytest.mark.parametrize("zone", ["+00:00", "Z"])
def test_utc_may_be_written_out(tmp_path: Path, zone: str) -> None:
    """Timestamps of the traces of 2024 carry UTC and mean the same as plain ones."""
    path = tmp_path / "trace.csv"
    rows = f"2024-05-10 00:00:00.009930{zone},5,6\n2024-05-10 00:00:01.509930{zone},7,8\n"
    path.write_text(HEADER + rows, encoding="utf-8")
    np.testing.assert_allclose(load_trace(path).arrived_at_s, [0.0, 1.5], atol=1e-9)


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("", 1, "header"),
        ("time,a,b\n", 1, "header"),
        (HEADER, 0, "two requests"),
        (HEADER + "2023-11-16 18:17:03.97,5,5\n2023-11-16 18:17:04.1,5\n", 3, "3 columns"),
        (HEADER + "2023-11-16 18:17:03.97,5,5\n\n2023-11-16 18:17:04.1,5,6\n", 3, "3 columns"),
        (HEADER + "2023-11-16 18:17:03.97,5,5\n2023-11-16 18:17:04.1,,6\n", 3, "whole number"),
        (HEADER + "2023-11-16 18:17:03.97,5,-5\n2023-11-16 18:17:04.1,5,6\n", 2, "whole number"),
        (HEADER + "2023-11-16 18:17:03.97,5,nan\n2023-11-16 18:17:04.1,5,6\n", 2, "whole number"),
        (HEADER + "yesterday,5,5\n2023-11-16 18:17:04.1,5,6\n", 2, "timestamp"),
        (HEADER + "2023-11-16 18:17:03+02:00,5,5\n2023-11-16 18:17:04+02:00,5,6\n", 2, "timestamp"),
        (HEADER + "2023-11-16 18:17:03-02:00,5,5\n2023-11-16 18:17:04-02:00,5,6\n", 2, "timestamp"),
        (HEADER + "NaT,5,5\n2023-11-16 18:17:04.1,5,6\n", 2, "timestamp"),
        (HEADER + "2023-11-16 18:17:05,5,5\n2023-11-16 18:17:04,5,6\n", 3, "not before"),
        (HEADER + "2023-11-16 18:17:05,5,5\n2023-11-16 19:17:05,5,6\n", 3, "gap"),
        (HEADER + "2023-11-16 18:17:05,5,5\n2023-11-16 18:17:05,5,6\n", 0, "two requests"),
    ],
)
def test_a_bad_trace_is_refused_by_line(tmp_path: Path, text: str, line: int, expected: str) -> None:
    """Each defect is named with file and line."""
    path = tmp_path / "trace.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DocumentError) as caught:
        load_trace(path)
    problem = caught.value.problems[0]
    assert (problem.file, problem.line) == (str(path), line)
    assert expected in problem.expected


def test_many_bad_rows_are_reported_together_up_to_a_limit(tmp_path: Path) -> None:
    """All defects are listed, at most twenty."""
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "x,y,z\n" * 500, encoding="utf-8")
    with pytest.raises(DocumentError) as caught:
        load_trace(path)
    assert 20 <= len(caught.value.problems) <= 22


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00bad"])
def test_an_unreadable_trace_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """A missing file and one that is not text give errors of the same kind."""
    path = tmp_path / "trace.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DocumentError, match=r"readable file|UTF-8 text"):
        load_trace(path)


@pytest.mark.needs("azure_trace")
def test_the_public_trace_loads(azure_trace_path: Path) -> None:
    """The published code trace of 2023 has 8,819 requests in about an hour."""
    trace = load_trace(azure_trace_path)
    assert len(trace) == 8819
    assert 3400.0 < trace.arrived_at_s[-1] < 3500.0
    assert trace.prompt_tokens.max() == 7437
