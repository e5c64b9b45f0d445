"""Usual step times of a replica: learned in health, judged against, and unknown where they vary too much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.documents.route import HeldAgainst
from contracts.rng import stream
from contracts.telemetry import FleetTelemetry
from controller.detect.step_time import NOISE
from controller.explain.assumptions import assumptions
from controller.initial import initial_state
from controller.options import ControllerSetup
from controller.perceive.usual_speed import usual_of_kernels
from controller.perceive.usual_speed_pass import (
    COLUMNS,
    LEAST_SCRAPES,
    MEAN,
    MOST_SPREAD,
    SCRAPES,
    VARIANCE,
    divide,
    follow,
)
from controller.state import altered
from policies.registry import make_configuration
from tests.support.fleets.builders import make_layout
from tests.support.fleets.clocks import clocked_fleet, clocks
from tests.support.fleets.worlds import Run, run, script

LAYOUT = make_layout(kernels=2, slices=2, per_kernel=4)
LIMIT = 1.4
KNOWN = int(LEAST_SCRAPES)
ONSET_S = KNOWN + 40.0
Factors = Callable[[float], list[float]]


def learned(ratio: np.ndarray, load: np.ndarray | None = None) -> np.ndarray:
    """[R, COLUMNS] after the scrapes ``ratio`` [T, R] at that ``load``, one fleet."""
    load = np.ones_like(ratio) if load is None else load
    usual: np.ndarray = np.zeros((1, ratio.shape[1], COLUMNS))
    for row, tokens in zip(ratio, load, strict=True):
        follow(usual, row[None], tokens[None], np.ones((1, row.size), dtype=np.bool_))
    return np.asarray(usual[0])


def judged(ratio: np.ndarray, usual: np.ndarray, load: np.ndarray | None = None) -> np.ndarray:
    """What the clause reads of the scrapes ``ratio`` [T, R] at that ``load``."""
    found = np.empty_like(ratio)
    divide(
        found, ratio, np.ones_like(ratio) if load is None else load, np.tile(usual, (len(ratio), 1, 1)), LIMIT
    )
    return found


def driven(
    own_clocks: HeldAgainst, factors: Factors, ticks: int, spread: float = 0.0
) -> tuple[Run, ControllerSetup]:
    """Steps take ``factors`` times as long as certified, with ``spread`` on the log scale."""
    rng = stream(11, "usual speed")

    def edit(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        noise = np.exp(spread * rng.normal(size=8))
        return clocks([one * off for one, off in zip(factors(now_s), noise, strict=True)])(seen, now_s)

    fleet = make_configuration("sequential", clocked_fleet(LAYOUT))
    setup = replace(fleet, own_clocks=own_clocks)
    return run(setup, script(LAYOUT, ticks, edit)), setup


def another_machine(now_s: float) -> list[float]:
    """All are five times as slow as certified; one is four times slower still from ``ONSET_S`` on."""
    return [20.0 if now_s > ONSET_S else 5.0] + [5.0] * 7


@given(factor=st.floats(0.05, 20.0), spread=st.floats(0.0, 0.4), seed=st.integers(0, 1000))
def test_usual_step_times_are_no_evidence_and_a_multiple_is(factor: float, spread: float, seed: int) -> None:
    """On any machine the judged log ratio lies about 0 with the noise that the null allows."""
    noise = np.exp(spread * stream(seed, "clock").normal(size=(400, 3)))
    usual = learned(factor * noise)
    assert (usual[:, SCRAPES] > 360.0).all()
    fresh = np.log(judged(factor * noise, usual) / LIMIT)
    assert (fresh.mean(axis=0) < 0.0).all()
    assert (fresh.std(axis=0) < 1.2 * NOISE + 1e-9).all()
    slow = judged(8.0 * factor * noise, usual)
    assert (np.exp(np.log(slow).mean(axis=0)) > LIMIT).all()


def test_unknown_until_enough_scrapes_and_where_they_vary_too_much() -> None:
    """Few scrapes give no value, nor does a replica that varies between 1 and 20 times as long."""
    steady = np.full((KNOWN, 1), 3.0)
    assert np.isnan(judged(steady[:1], learned(steady[:-1]))).all()
    assert judged(steady[:1], learned(steady)) == pytest.approx(1.0, rel=0.1)
    unsteady = np.where(np.arange(400)[:, None] % 2 == 0, 1.0, 20.0)
    usual = learned(unsteady)
    assert usual[0, VARIANCE] > MOST_SPREAD**2
    assert np.isnan(judged(unsteady, usual)).all()


def test_slow_scrapes_are_not_learned() -> None:
    """A thousand scrapes at four times the usual leave it unchanged; faster ones move it."""
    calm = np.full((200, 1), 3.0)
    usual = learned(calm)
    assert learned(np.vstack([calm, np.full((1000, 1), 12.0)]))[0].tolist() == usual[0].tolist()
    assert learned(np.vstack([calm, np.full((1000, 1), 1.5)]))[0, MEAN] < usual[0, MEAN] - 0.3
    nothing = np.vstack([calm, np.full((9, 1), np.nan), np.zeros((9, 1)), np.full((9, 1), np.inf)])
    assert learned(nothing)[0].tolist() == usual[0].tolist()


@given(slope=st.floats(-0.5, 0.5), seed=st.integers(0, 1000))
def test_a_model_error_in_the_load_makes_no_replica_slow(slope: float, seed: int) -> None:
    """Steps that grow with load otherwise than certified are no evidence at varying loads."""
    rng = stream(seed, "load")
    load = np.exp(rng.normal(scale=0.8, size=(600, 1)))
    ratio = 3.0 * load**slope * np.exp(0.1 * rng.normal(size=(600, 1)))
    usual = learned(ratio, load)
    found = np.log(judged(ratio, usual, load) / LIMIT) / NOISE
    worth = np.exp(2.0 * found[np.isfinite(found)] - 2.0)
    assert worth.mean() < 1.0
    slow = judged(8.0 * ratio, usual, load)
    assert np.log(slow[np.isfinite(slow)] / LIMIT).mean() > 0.0
    assert np.isfinite(slow).mean() > 0.9


def test_an_unseen_load_is_unknown_and_learned() -> None:
    """Twice the load and steps twice as long may be the model's error; half the load was seen."""
    calm = np.full((200, 1), 3.0)
    usual = learned(calm)
    twice = 2.0 * np.ones((200, 1))
    assert np.isnan(judged(2.0 * calm, usual, twice)).all()
    more = learned(np.vstack([calm, 1.5 * calm]), np.vstack([np.ones_like(calm), twice]))
    known = judged(1.5 * calm, more, twice)
    assert (known < LIMIT).all()
    assert (judged(6.0 * calm, more, twice) > LIMIT).all()
    assert (judged(4.0 * calm, usual, 0.5 * np.ones((200, 1))) > LIMIT).all()


def test_no_replica_goes_on_a_slower_machine_than_the_certified_one() -> None:
    """Five times as slow as certified: against that all are unhealthy, against their past none is."""
    certified, _ = driven("certified", lambda now_s: [5.0] * 8, 60)
    assert not certified.decisions[-1].judgement.certified.all()
    usual, _ = driven("usual", lambda now_s: [5.0] * 8, 400, spread=0.3)
    assert not usual.quarantined().any()
    assert all(one.judgement.certified.all() for one in usual.decisions)


@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_one_slow_replica_on_such_a_machine_goes(spread: float) -> None:
    """Four times its usual: taken out within ten scrapes, and its usual step time is kept."""
    found, setup = driven("usual", another_machine, int(ONSET_S) + 30, spread)
    away = np.flatnonzero(found.quarantined().any(axis=1))
    assert found.quarantined()[-1].tolist() == [True] + [False] * 7
    assert ONSET_S <= away[0] + 1 <= ONSET_S + 10
    assert np.exp(found.state.usual["clock"][0, :, MEAN]) == pytest.approx(5.0, rel=0.2)
    blind, _ = driven("off", another_machine, int(ONSET_S) + 30, spread)
    assert not blind.quarantined().any()
    said = " ".join(assumptions(found.state, found.decisions[-1], setup, 0))
    assert "usual step times over the certified ones" in said
    assert "not judged" not in said


def test_a_decision_names_replicas_that_are_not_judged_yet() -> None:
    """Before usual step times are known no replica is judged by them, and the record says so."""
    found, setup = driven("usual", lambda now_s: [5.0] * 8, 20)
    said = [line for line in assumptions(found.state, found.decisions[-1], setup, 0) if "own clock" in line]
    assert len(said) == 1
    assert all(name in said[0] for name in LAYOUT.replicas)


def test_kernels_without_scrapes_are_as_slow_as_the_others_and_never_faster() -> None:
    """A slow machine is assumed for unmeasured kernels too; a fast one is not."""
    setup = replace(make_configuration("fixed", clocked_fleet(LAYOUT)), own_clocks="usual")
    state = initial_state(setup, 2)
    speed = state.usual["speed"].copy()
    speed[:, :3, SCRAPES], speed[0, :3, MEAN], speed[1, :3, MEAN] = 100.0, [0.4, 1.2, 1.6], -1.0
    told = altered(state, usual={**state.usual, "speed": speed})
    found = usual_of_kernels(told, setup.layout.replica_kernel)
    assert found.tolist() == [[1.2, 1.2], [-1.0, 0.0]]


def test_capacity_is_that_of_the_serving_machine() -> None:
    """A kernel's healthy capacity is that at its usual speed; so is that of an unmeasured kernel."""
    usual, _ = driven("usual", lambda now_s: [5.0] * 4 + [np.nan] * 4, 400)
    certified, _ = driven("off", lambda now_s: [5.0] * 4 + [np.nan] * 4, 400)
    ratio = usual.state.healthy_rps[0] / certified.state.healthy_rps[0]
    assert ratio == pytest.approx([0.2, 0.2], rel=0.15)
    assert usual.state.replica_rps[0, 1] == pytest.approx(usual.state.healthy_rps[0, 1])
    assert certified.state.replica_rps[0, 1] > 3.0 * usual.state.replica_rps[0, 1]


def test_certified_clocks_need_no_memory() -> None:
    """Simulated fleets compare step times with the certified ones: no memory, and no other decision."""
    setup = make_configuration("fixed", clocked_fleet(LAYOUT))
    assert setup.own_clocks == "certified"
    assert initial_state(setup, 1).usual == {}
