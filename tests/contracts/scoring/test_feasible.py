"""Incidents that no policy can end: the theorem against a linear program, and the score used instead."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from contracts.scoring.episode import EpisodeRecord
from contracts.scoring.feasible import carried
from contracts.scoring.incident_measures import measure_incident
from contracts.scoring.measure_table import MEASURES
from contracts.scoring.measures import measure_episode
from contracts.scoring.quality import healthy_quality
from tests.support.fleets.episodes import broken_record, move_at


def known(record: EpisodeRecord, good_rps: float) -> EpisodeRecord:
    """``record``, of 10 requests/s on each of two slices, whose only good replica carries ``good_rps``."""
    most_rps, loss = np.array([50.0, 50.0, good_rps]), np.full((2, 2), 0.1)
    return replace(record, most_rps=most_rps, healthy_loss=loss)


@given(st.integers(0, 2**32))
def test_feasible_load_equals_that_of_a_linear_program(seed: int) -> None:
    """For random rates, replicas and cells: all fits exactly where the program serves all."""
    rng = np.random.Generator(np.random.PCG64(seed))
    replicas, slices = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    usable, rate_rps = rng.random((replicas, slices)) < 0.6, rng.uniform(0.5, 5.0, slices)
    capacity_rps = rng.uniform(0.5, 9.0, replicas)
    placed = linprog(
        -np.ones(replicas * slices),
        A_ub=np.vstack(
            [np.kron(np.eye(replicas), np.ones(slices)), np.kron(np.ones(replicas), np.eye(slices))]
        ),
        b_ub=np.concatenate([capacity_rps, rate_rps]),
        bounds=np.column_stack([np.zeros(usable.size), np.where(usable.ravel(), np.inf, 0.0)]),
    )
    fits = carried(rate_rps[None], usable[None], capacity_rps)[0]
    assert fits == (-placed.fun >= rate_rps.sum() - 1e-7)


@given(st.integers(0, 2**32))
def test_windows_judged_together_equal_windows_judged_one_by_one(seed: int) -> None:
    """For any runs of windows with the same usable replicas, each fits exactly as it does alone."""
    rng = np.random.Generator(np.random.PCG64(seed))
    patterns = rng.random((3, 3, 2)) < 0.5
    usable = np.repeat(patterns[rng.integers(0, 3, 6)], rng.integers(1, 4, 6), axis=0)
    rate_rps, capacity_rps = rng.uniform(0.5, 5.0, (len(usable), 2)), rng.uniform(0.5, 9.0, 3)
    alone = [carried(rate_rps[w : w + 1], usable[w : w + 1], capacity_rps)[0] for w in range(len(usable))]
    assert carried(rate_rps, usable, capacity_rps).tolist() == alone


def test_an_incident_is_infeasible_where_the_good_replicas_cannot_carry_the_load() -> None:
    """Of 20 requests/s 99 % must be carried: a good replica for 19 cannot, one for 20 can."""
    short, enough = (measure_incident(known(broken_record(), rps)) for rps in (19.0, 20.0))
    assert short is not None
    assert enough is not None
    assert (short.infeasible, enough.infeasible) == (True, False)
    assert math.isnan(enough.regret_ratio)


def test_a_window_that_fits_makes_it_feasible() -> None:
    """A minute of lower load is enough to recover, fifty seconds are not."""
    for rows, infeasible in ((60, False), (50, True)):
        record = known(broken_record(), 10.5)
        record.offered[100 : 100 + rows] = 5
        found = measure_incident(record)
        assert found is not None
        assert found.infeasible == infeasible


@pytest.mark.parametrize("good_rps", [8.0, 16.0])
def test_regret_is_what_the_optimum_would_have_answered_in_addition(good_rps: float) -> None:
    """The optimum serves what the good replica carries, less its loss; actual answers are subtracted."""
    record = known(broken_record(), good_rps)
    record.useful_tokens[50:] = 30.0
    found = measure_incident(record)
    assert found is not None
    assert found.regret_ratio == pytest.approx(0.9 * good_rps / 20.0 - 30.0 / 200.0)
    record.useful_tokens[50:] = 200.0
    satisfied = measure_incident(record)
    assert satisfied is not None
    assert satisfied.regret_ratio == 0.0


def test_an_infeasible_incident_has_no_time_to_recovery() -> None:
    """Its recovery does not apply, its detection does; without capacities nothing is infeasible."""
    record = move_at(broken_record(), 57)
    episodes = [measure_episode(one, healthy_quality(one)) for one in (record, known(record, 10.0))]
    values = [{one.name: one.value(episode) for one in MEASURES} for episode in episodes]
    assert (values[0]["infeasible"], values[1]["infeasible"]) == (0.0, 1.0)
    assert values[0]["mttr_s"] == 7.0
    for name in ("mttr_s", "unrecovered", "violation_lag_s", "visible_lag_s", "slice_lag_s", "excess_s"):
        assert math.isnan(values[1][name])
    assert values[0]["detection_lag_s"] == values[1]["detection_lag_s"] == 7.0
    assert values[1]["regret_ratio"] >= 0.0
