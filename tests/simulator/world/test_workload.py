"""The workload stream: one seed, one random stream per kind of number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.workload.arrivals import LengthLaw, constant_rate
from contracts.workload.azure_trace import load_trace
from simulator.engine.layout import ARRIVAL
from simulator.engine.requests import RequestArrivals
from simulator.world.workload import BLOCK, LengthDrift, WorkloadSpec, WorkloadStream
from tests.support.paths import DATA

SPEC = WorkloadSpec(
    profile=constant_rate(100.0),
    slice_share=np.array([0.5, 0.3, 0.2]),
    prompt_tokens=(LengthLaw(mean=300.0, sigma=0.7, high=4096),),
    output_tokens=(LengthLaw(mean=60.0), LengthLaw(mean=90.0), LengthLaw(mean=40.0, sigma=0.5)),
    prompt_ids=np.array([9, 7, 5, 3, 1, 0]),
    prompt_offsets=np.array([0, 2, 3, 6]),
)
FIELDS = tuple(RequestArrivals.__dataclass_fields__)


def assert_same(left: RequestArrivals, right: RequestArrivals, *, but: tuple[str, ...] = ()) -> None:
    """Assert equality in every column except the named ones."""
    for name in FIELDS:
        if name not in but:
            np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)


@settings(max_examples=20)
@given(cuts=st.lists(st.floats(0.0, 120.0), max_size=8))
def test_pieces_join_to_the_same_stream(cuts: list[float]) -> None:
    """However the stream is split, its requests are the same and each comes once."""
    whole = WorkloadStream(SPEC, 1).until(120.0)
    stream = WorkloadStream(SPEC, 1)
    pieces = [stream.until(end_at_s) for end_at_s in [*sorted(cuts), 120.0]]
    for name in FIELDS:
        joined = np.concatenate([getattr(piece, name) for piece in pieces])
        np.testing.assert_array_equal(joined, getattr(whole, name))


@pytest.mark.parametrize("laws", [1, 3])
def test_a_stream_with_a_known_end_draws_the_same_up_to_it(laws: int) -> None:
    """A known end saves draws beyond it and changes no request before it."""
    spec, enough_s = replace(SPEC, session_ratio=0.5, output_tokens=SPEC.output_tokens[-laws:]), 60.0
    whole, told = WorkloadStream(spec, 9), WorkloadStream(spec, 9)
    drawn = 0.0
    while drawn <= enough_s:
        expected = whole.draw(np.empty(BLOCK, ARRIVAL))
        seen = told.draw(np.empty(BLOCK, ARRIVAL), enough_s)
        drawn = float(seen["arrived_at_s"][-1])
        np.testing.assert_array_equal(seen, expected[: len(seen)])
    assert len(seen) < BLOCK
    assert (seen["arrived_at_s"][:-1] <= enough_s).all()


def test_drift_changes_only_lengths_and_linearly() -> None:
    """Prompts double over 60 s and stay doubled, answers halve; every other number is as without drift."""
    drift = LengthDrift(prompt_factor=2.0, output_factor=0.5, over_s=60.0)
    still, moved = (WorkloadStream(replace(SPEC, drift=one), 4).until(120.0) for one in (None, drift))
    assert_same(still, moved, but=("prompt_tokens", "output_tokens"))
    share = np.minimum(still.arrived_at_s / 60.0, 1.0)
    expected = np.minimum(still.prompt_tokens * (1.0 + share), 4096)
    assert (np.abs(moved.prompt_tokens - expected) <= 1.0).all()
    assert (np.abs(moved.output_tokens - still.output_tokens * (1.0 - 0.5 * share)) <= 1.0).all()


def test_arrivals_are_in_order_and_in_range() -> None:
    """Times rise up to the requested instant; slices, prompts and uniforms stay in their ranges."""
    seen = WorkloadStream(SPEC, 2).until(100.0)
    assert (np.diff(seen.arrived_at_s) >= 0.0).all()
    assert seen.arrived_at_s[-1] <= 100.0
    assert (seen.uniforms >= 0.0).all()
    assert (seen.uniforms < 1.0).all()
    for s, ids in enumerate(([9, 7], [5], [3, 1, 0])):
        assert set(seen.prompt[seen.slice == s].tolist()) == set(ids)
    assert set(seen.output_tokens[seen.slice == 1].tolist()) == {90}


def test_slices_get_their_shares() -> None:
    """Shares of 50,000 requests are the declared ones within four standard errors."""
    seen = WorkloadStream(SPEC, 3).until(500.0)
    shares = np.bincount(seen.slice, minlength=3) / len(seen)
    error = np.sqrt(SPEC.slice_share * (1.0 - SPEC.slice_share) / len(seen))
    assert (np.abs(shares - SPEC.slice_share) < 4.0 * error).all()


def test_sessions_change_nothing_else() -> None:
    """Switching sessions on changes the session column and no other number."""
    calm = WorkloadStream(SPEC, 4).until(60.0)
    social = WorkloadStream(replace(SPEC, session_ratio=0.5), 4).until(60.0)
    assert_same(calm, social, but=("session",))
    assert (calm.session == -1).all()
    assert abs((social.session >= 0).mean() - 0.5) < 4.0 * 0.5 / np.sqrt(len(social))
    owners = {
        int(s): set(social.slice[social.session == s].tolist()) for s in set(social.session.tolist()) - {-1}
    }
    assert all(len(slices) == 1 for slices in owners.values())


def test_a_surge_changes_only_times() -> None:
    """Under a surge the same requests come, only sooner."""
    calm = WorkloadStream(SPEC, 5).until(60.0)
    surge = WorkloadStream(replace(SPEC, profile=SPEC.profile.scaled(10.0, 20.0, 4.0)), 5).until(60.0)
    n = len(calm)
    assert len(surge) > n
    for name in set(FIELDS) - {"arrived_at_s"}:
        np.testing.assert_array_equal(getattr(surge, name)[:n], getattr(calm, name))
    before = calm.arrived_at_s <= 10.0
    np.testing.assert_allclose(surge.arrived_at_s[:n][before], calm.arrived_at_s[before], rtol=1e-12)


def test_seeds_differ_and_repeat() -> None:
    """The same seed gives the same bytes, another seed another stream."""
    first = WorkloadStream(SPEC, 6).until(10.0)
    assert_same(first, WorkloadStream(SPEC, 6).until(10.0))
    assert first.arrived_at_s[0] != WorkloadStream(SPEC, 7).until(10.0).arrived_at_s[0]


def test_a_trace_sets_gaps_and_lengths() -> None:
    """Token counts and relative gaps of a trace are kept, scaled to the profile's rate."""
    trace = load_trace(DATA / "azure_trace_synthetic.csv")
    profile = constant_rate(2.0 * trace.mean_rate_rps)
    spec = replace(SPEC, trace=trace, profile=profile, output_tokens=(LengthLaw(mean=60.0, high=100),))
    seen = WorkloadStream(spec, 8).until(60.0)
    np.testing.assert_allclose(seen.arrived_at_s[:12], trace.arrived_at_s / 2.0, atol=1e-9)
    np.testing.assert_array_equal(seen.prompt_tokens[:12], np.minimum(trace.prompt_tokens, 4096))
    np.testing.assert_array_equal(seen.output_tokens[12:24], np.minimum(trace.output_tokens, 100))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slice_share": np.array([0.5, 0.3, 0.3])}, "sum to 1"),
        ({"prompt_offsets": np.array([0, 2, 2, 6])}, "at least one prompt"),
        ({"output_tokens": (LengthLaw(mean=1.0),) * 2}, "one per slice"),
        ({"session_ratio": 1.5}, "ratio"),
    ],
)
def test_an_impossible_workload_is_refused(changes: dict[str, Any], message: str) -> None:
    """The error says what was expected."""
    with pytest.raises(ValueError, match=message):
        replace(SPEC, **changes)
