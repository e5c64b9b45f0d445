"""A certified past: its limits hold for any law, alarms on it keep their run length, changes are found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from contracts.metrics.generation import surprise_outside
from contracts.rng import stream
from controller.detect.budget import split_budget
from controller.detect.clauses import plan_clauses
from controller.detect.streams.protocol import guaranteed_threshold
from live.observe.past import EDGE, MOST_OUTSIDE, PAST, BuildOnSlice, SurprisePasts, read_pasts
from tests.support.documents.passive_contracts import CLAUSE, passive_contract, passive_fleet

CELL = BuildOnSlice("half", "build-1", "code")
Law = Callable[[np.random.Generator, int], np.ndarray]
#: Law of the mean surprise of one answer, nats.
LAWS: dict[str, Law] = {
    "smooth": lambda rng, n: rng.gamma(20.0, 0.1, n),
    "heavy": lambda rng, n: rng.lognormal(0.0, 1.2, n),
    "two kinds of users": lambda rng, n: rng.normal(np.where(rng.random(n) < 0.3, 1.0, 3.0), 0.1),
}


def learned(values: np.ndarray) -> tuple[float, float]:
    """Limits of a past of these surprises."""
    pasts = SurprisePasts()
    for value in values.tolist():
        pasts.learn(CELL, value)
    limits = pasts.limits(CELL)
    assert limits is not None
    return limits


@pytest.mark.parametrize("name", LAWS)
def test_the_share_outside_follows_wilks(name: str) -> None:
    """Over 200 pasts the share of equal answers outside is 0.05 on average, and never far above the bound."""
    rng, law = stream(1, "pasts", name), LAWS[name]
    shares = []
    for _ in range(200):
        low, high = learned(law(rng, PAST))
        like = law(rng, 2000)
        shares.append(np.mean([(like < low) | (like > high)]))
    expected = beta(2 * EDGE, PAST + 1 - 2 * EDGE)
    assert np.mean(shares) == pytest.approx(expected.mean(), abs=4.0 * expected.std() / 14.0)
    assert np.mean(np.array(shares) > MOST_OUTSIDE) <= 0.01


def test_no_more_than_one_past_in_a_thousand_is_above_the_bound() -> None:
    """The bound that documents state is the law's quantile, and the documented clause is above it."""
    assert beta(2 * EDGE, PAST + 1 - 2 * EDGE).sf(MOST_OUTSIDE) <= 1e-3
    clause = next(one for one in passive_contract().spec.clauses if one.id == CLAUSE)
    assert clause.threshold >= MOST_OUTSIDE


def run_length(law: Law, changed: Law, arl0: float, horizon: int, seed: int) -> int:
    """Observations until the documented clause alarms at ``arl0``, at most ``horizon``."""
    fleet = passive_fleet()
    place = fleet.contract.clause_ids.index(CLAUSE)
    detector = plan_clauses(fleet.contract).detector(place)
    state, rng = detector.initial(1), stream(seed, "run-length")
    low, high = learned(law(rng, PAST))
    for at, value in enumerate(changed(rng, horizon).tolist(), start=1):
        detector.advance(state, np.array([surprise_outside(value, low, high)]), np.array([True]))
        if state.statistic[0] >= guaranteed_threshold(arl0):
            return at
    return horizon


@pytest.mark.parametrize("name", LAWS)
def test_unchanged_users_raise_no_more_alarms_than_allowed(name: str) -> None:
    """The mean run length to a false alarm is at least the stated one, pasts drawn anew each time."""
    lengths = [run_length(LAWS[name], LAWS[name], 100.0, 600, seed) for seed in range(24)]
    assert np.mean(lengths) >= 100.0


@pytest.mark.parametrize("factor", [0.5, 1.6])
def test_a_shifted_law_is_found_on_either_side(factor: float) -> None:
    """Sharper and flatter answers are found within 120 observations at the run length of the budget."""
    fleet = passive_fleet()
    split = split_budget(fleet.contract, fleet.layout, fleet.rates)
    arl0 = float(split.kernel_arl0[0, 0, fleet.contract.clause_ids.index(CLAUSE)])

    def shifted(rng: np.random.Generator, n: int) -> np.ndarray:
        return factor * LAWS["smooth"](rng, n)

    lengths = [run_length(LAWS["smooth"], shifted, arl0, 200, seed) for seed in range(10)]
    assert max(lengths) <= 120


def test_the_clause_has_its_own_share_of_the_budget() -> None:
    """Replicas and kernel book false alarms for it, and all together stay within the contract's budget."""
    fleet = passive_fleet()
    split = split_budget(fleet.contract, fleet.layout, fleet.rates)
    own = [line for line in split.lines if line.clause == CLAUSE]
    assert {line.unit for line in own} == {"replica", "kernel"}
    assert all(line.alarms_per_month > 0.0 for line in own)
    allowed = fleet.contract.false_switch_budget_per_slice_month
    assert split.alarms_per_slice_month <= allowed + 1e-9


@settings(max_examples=15)
@given(st.lists(st.floats(0.0, 50.0), min_size=PAST, max_size=PAST + 20))
def test_a_past_keeps_its_first_answers_and_comes_back_from_its_file(values: list[float]) -> None:
    """What comes after the last of ``PAST`` changes no limit, nor does the order in which they came."""
    low, high = learned(np.array(values))
    first = sorted(values[:PAST])
    assert (low, high) == (first[EDGE - 1], first[-EDGE])
    assert learned(np.array(values[:PAST][::-1])) == (low, high)


def test_a_kept_past_is_read_again_and_holds_numbers_alone(tmp_path: Path) -> None:
    """A complete past outlives the controller, an incomplete one does not; no token is in the file."""
    pasts, file = SurprisePasts(), tmp_path / "control" / "past.json"
    for value in np.linspace(0.5, 2.5, PAST).tolist():
        pasts.learn(CELL, value)
    pasts.learn(BuildOnSlice("half", "build-2", "code"), 1.0)
    pasts.write(file)
    again = read_pasts(file)
    assert again.limits(CELL) == pasts.limits(CELL)
    assert list(again.by_cell) == [CELL]
    told = json.loads(file.read_text())
    assert set(told["pasts"][0]) == {"kernel", "fingerprint", "slice", "nats"}


@pytest.mark.parametrize("text", ["", "[]", '{"format": "selvage-surprise-past/1", "pasts": [{}]}', "\x00"])
def test_a_file_that_is_none_of_ours_is_no_past(tmp_path: Path, text: str) -> None:
    """With any other file, the controller begins without a past."""
    file = tmp_path / "past.json"
    file.write_text(text)
    assert read_pasts(file).by_cell == {}
    assert read_pasts(tmp_path / "none.json").by_cell == {}
