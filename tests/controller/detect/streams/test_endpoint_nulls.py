"""Ranks keep their ARL0 on exchangeable data, and are refused elsewhere; distances keep it on every null."""

from __future__ import annotations

import math

import numpy as np
import pytest

from contracts.rng import stream
from controller.detect.calibration.simulate import FalseAlarms
from controller.detect.streams.distance import FLOOR_NATS, Distance, distance_form
from controller.detect.streams.protocol import StreamDetector, StreamState, guaranteed_threshold
from controller.detect.streams.ranks import Rank, rank_detector, rank_edges
from controller.detect.streams.stickiness import LEVEL, stickiness
from tests.support.fleets.endpoint_nulls import NULLS, Floats
from tests.support.run_lengths import arl_at_least, arl_at_most

ARL0 = 1000.0
EXCHANGEABLE = ("near-constant", "three hosts at random")
STICKY = ("two hosts for hours", "two hosts for days", "date in the template", "drift", "slow drift")
REFERENCE, STREAMS, RUN = 200, 300, 100


def alarms(detector: StreamDetector, state: StreamState, values: Floats) -> FalseAlarms:
    """First alarms of streams [N] over ``values`` [T, N] at the guaranteed threshold."""
    state, present, samples = state.copy(), np.ones(values.shape[1], dtype=np.bool_), 0
    for row in values:
        detector.advance(state, row, present)
        samples += int(present.sum())
        present &= state.statistic < guaranteed_threshold(ARL0)
    return FalseAlarms(alarms=int((~present).sum()), samples=samples)


def ranked(values: Floats, floor: float = -math.inf) -> tuple[FalseAlarms, FalseAlarms, float]:
    """Alarms of the rank form where it may be used and on all streams, and the share that may use it.

    values: [REFERENCE + RUN, N], the healthy past first. floor: relative to the median of the past.
    """
    past, then = values[:REFERENCE].T, values[REFERENCE:]
    edges = rank_edges(past[::10].ravel())
    middle = np.median(past, axis=1)
    detector = Rank(edges=tuple(edges.tolist()), counts=(0.0,) * (edges.size + 1), floor=floor)
    may = np.array([stickiness(row).may_rank for row in past])
    if floor > -math.inf:
        past, then = past - middle[:, None], then - middle
    asked = FalseAlarms(alarms=0, samples=0)
    if may.any():
        asked = alarms(detector, detector.with_references(past[may]), then[:, may])
    every = alarms(detector, detector.with_references(past), then)
    return asked, every, float(may.mean())


def drawn(name: str) -> Floats:
    """Answers [REFERENCE + RUN, STREAMS, TOKENS] of the null ``name``."""
    return NULLS[name].draw(stream(7, f"endpoint {name}"), STREAMS, REFERENCE + RUN)


@pytest.mark.parametrize("name", EXCHANGEABLE)
def test_ranks_keep_their_arl0_on_few_exact_values(name: str) -> None:
    """Exchangeable values may be ranked, ties included, and keep at least the declared run length."""
    asked, every, may = ranked(-drawn(name).mean(axis=2))
    assert may >= 1.0 - 3.0 * LEVEL
    assert arl_at_least(asked, 0.95) >= ARL0
    assert arl_at_least(every, 0.95) >= ARL0


@pytest.mark.parametrize("name", STICKY)
def test_ranks_are_refused_where_they_break_their_arl0(name: str) -> None:
    """Sticky hosts, dates in templates and drifts ruin the run length of ranks; the check refuses them."""
    _, every, may = ranked(-drawn(name).mean(axis=2))
    assert arl_at_most(every, 0.99) < ARL0
    assert may <= (0.4 if name == "slow drift" else 0.0)


@pytest.mark.parametrize("name", NULLS)
def test_ranks_with_a_floor_keep_their_arl0_on_every_null(name: str) -> None:
    """On sticky laws and without the check, values within the absolute floor raise no alarm."""
    _, every, _ = ranked(-drawn(name).mean(axis=2), floor=FLOOR_NATS)
    assert arl_at_least(every, 0.99) >= ARL0


def test_exchangeable_samples_are_refused_as_rarely_as_declared() -> None:
    """Independent values may be ranked: the check does not refuse everything."""
    normal = stream(1, "normal").normal(size=(400, REFERENCE))
    assert np.mean([stickiness(row).may_rank for row in normal]) >= 1.0 - 2.0 * LEVEL


def test_check_gives_its_reason() -> None:
    """Constant and sticky samples get different reasons; NaN are ignored, and too few values are refused."""
    constant, sticky = stickiness(np.ones(30)), stickiness(np.repeat(np.array([0.0, 1.0]), 50))
    assert (constant.may_rank, sticky.may_rank) == (False, False)
    assert "one value only" in constant.reason
    assert "not exchangeable" in sticky.reason
    assert sticky.correlation > 0.9
    noise = np.asarray(stream(2, "fine").normal(size=60), dtype=np.float64)
    fine = stickiness(np.append(noise, np.nan))
    assert (fine.reason, fine.horizon) == ("", 30)
    with pytest.raises(ValueError, match="at least 20"):
        stickiness(np.zeros(19))


def test_neither_a_first_unit_nor_a_constant_stream_alarms() -> None:
    """No single observation counts for more than half a rank of the reference sample."""
    rng = stream(3, "first units")
    edges = rank_edges(rng.normal(size=200))
    detector = Rank(edges=tuple(edges.tolist()), counts=(0.0,) * (edges.size + 1))
    state = detector.with_references(rng.normal(size=(2000, 100)))
    found = alarms(detector, state, np.full((1, 2000), 1e9))
    assert found.alarms == 0
    constant = rank_detector(np.ones(100))
    assert arl_at_most(alarms(constant, constant.initial(400), np.ones((400, 400))), 0.99) >= ARL0


def test_a_constant_reference_alarms_on_any_higher_value() -> None:
    """Any value above the one that all references share is told apart from it, however small the gap."""
    for above in (50.0, 1.01, 1.0 + 1e-12):
        detector = rank_detector(np.ones(100))
        assert alarms(detector, detector.initial(1), np.full((20, 1), above)).alarms >= 1
    atoms = rank_edges(np.array([0.0, 0.0, 1.0, 1.0, 2.0, 2.0]))
    bins = np.searchsorted(atoms, [0.0, 1.0, 1.5, 2.0, 2.5], side="right")
    assert len(set(bins.tolist())) == 5


def forms(answers: Floats) -> list[Distance]:
    """One distance form per stream of ``answers`` [T, N, TOKENS]."""
    return [distance_form(answers[:REFERENCE, n]) for n in range(answers.shape[1])]


@pytest.mark.parametrize("name", NULLS)
def test_distance_form_keeps_its_arl0_on_every_null(name: str) -> None:
    """Whether exact values repeat, persist, drift or renew: no more alarms than declared."""
    answers = drawn(name)
    ratio = np.stack(
        [form.observe(answers[REFERENCE:, n]) / form.limit for n, form in enumerate(forms(answers))], axis=1
    )
    detector = Distance(middle=np.zeros(1), limit=1.0).detector
    assert arl_at_least(alarms(detector, detector.initial(STREAMS), ratio), 0.99) >= ARL0


def test_distance_form_finds_a_fault_in_a_few_probes() -> None:
    """At ten times the floor ten probes suffice on any null; an unreadable answer gives NaN."""
    for name in NULLS:
        answers = drawn(name)[:, 0]
        form = distance_form(answers[:REFERENCE])
        faulty = answers[REFERENCE:] - 10.0 * FLOOR_NATS
        detector = form.detector
        found = alarms(detector, detector.initial(1), form.observe(faulty)[:10, None])
        assert found.alarms >= 1, name
    broken = np.array([[np.nan, -1.0], [0.5, -1.0], [-np.inf, -1.0], [-1.0, -1.0]])
    seen = Distance(middle=np.array([-1.0, -1.0]), limit=0.1).observe(broken)
    assert np.isnan(seen).tolist() == [True, True, True, False]


def test_bad_settings_of_the_distance_form_are_refused() -> None:
    """A floor of 0, a margin below 1 and too few readable answers are refused."""
    fine = np.full((30, 2), -1.0)
    with pytest.raises(ValueError, match="floor above 0"):
        distance_form(fine, floor=0.0)
    with pytest.raises(ValueError, match="at least 1"):
        distance_form(fine, margin=0.5)
    with pytest.raises(ValueError, match="got 19"):
        distance_form(np.r_[fine[:19], np.full((11, 2), np.nan)])
