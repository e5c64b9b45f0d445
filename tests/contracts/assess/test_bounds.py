"""The chain of bounds against exact distributions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.assess import bounds
from contracts.metrics import numeric
from tests.reference.importance import importance_moments, truncation_excess

SMALL = 1e-12


@st.composite
def kernels(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, float]:
    """Logits [1, V] of two kernels and a temperature; distances from nothing to far apart."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = draw(st.integers(2, 60))
    first = rng.normal(scale=draw(st.floats(0.1, 8.0)), size=(1, size))
    noise = rng.normal(scale=draw(st.floats(1e-6, 4.0)), size=(1, size))
    return first, first + noise, draw(st.floats(0.1, 5.0))


def log_probabilities(pair: tuple[np.ndarray, np.ndarray, float]) -> tuple[np.ndarray, np.ndarray, float]:
    """Log-probabilities at the temperature, and d of the logits."""
    first, second, temperature = pair
    reference = numeric.log_normalise(first / temperature)
    candidate = numeric.log_normalise(second / temperature)
    return reference, candidate, float(numeric.logit_linf(reference, candidate, temperature)[0])


@given(kernels())
def test_distance_survives_normalisation(pair: tuple[np.ndarray, np.ndarray, float]) -> None:
    """T times half the range of log-probability differences is half the range of logit differences."""
    difference = pair[0] - pair[1]
    expected = 0.5 * (difference.max() - difference.min())
    assert log_probabilities(pair)[2] == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(kernels())
def test_chain_holds_on_any_distributions(pair: tuple[np.ndarray, np.ndarray, float]) -> None:
    """TV and KL stay within their bounds, and sharp <= linear <= paper."""
    reference, candidate, distance = log_probabilities(pair)
    tv, kl, t = numeric.tv(reference, candidate)[0], numeric.kl(reference, candidate)[0], pair[2]
    sharp, linear = bounds.tv_bound(distance, t), bounds.tv_bound_linear(distance, t)
    assert tv <= sharp + SMALL
    assert sharp <= linear + SMALL
    assert linear <= bounds.tv_bound(distance, t, "paper") + SMALL
    assert kl <= bounds.kl_bound(distance, t) + SMALL


@given(st.floats(1e-6, 20.0), st.floats(0.1, 5.0))
def test_sharp_tv_bound_is_attained(distance: float, temperature: float) -> None:
    """Two tokens with swapped probabilities attain tanh(d / 2T)."""
    half = 0.5 * distance / temperature
    reference = numeric.log_normalise(np.array([[half, -half]]))
    tv = numeric.tv(reference, reference[:, ::-1])[0]
    assert tv == pytest.approx(float(bounds.tv_bound(distance, temperature)), rel=1e-9, abs=1e-12)


@given(st.floats(1e-4, 1e-2))
def test_kl_bound_is_tight_to_first_order(distance: float) -> None:
    """For two even tokens KL / (d^2 / 2) tends to 1 as d shrinks."""
    reference = numeric.log_normalise(np.array([[distance, -distance]]))
    kl = numeric.kl(reference, np.log(np.array([[0.5, 0.5]])))[0]
    assert kl / float(bounds.kl_bound(distance)) == pytest.approx(1.0, abs=1e-3)


@given(kernels(), st.integers(0, 2**32))
def test_reward_drift_stays_within_its_bounds(pair: tuple[np.ndarray, np.ndarray, float], seed: int) -> None:
    """The change of an expected reward is within (r_max - r_min) TV, which is within 2 R_max TV."""
    reference, candidate, _ = log_probabilities(pair)
    reward = np.random.default_rng(seed).uniform(-2.0, 3.0, size=(reference.shape[1],))
    drift = abs(float(((np.exp(reference) - np.exp(candidate)) * reward).sum()))
    tv = numeric.tv(reference, candidate)[0]
    low, high = float(reward.min()), float(reward.max())
    sharp = bounds.reward_drift_bound(tv, low, high)
    assert drift <= sharp + SMALL
    assert sharp <= bounds.reward_drift_bound(tv, low, high, "paper") + SMALL


@given(st.lists(kernels(), min_size=1, max_size=6), st.floats(0.01, 5.0))
def test_expected_tv_under_a_clause(
    pairs: list[tuple[np.ndarray, np.ndarray, float]], threshold: float
) -> None:
    """If a share rho of positions exceeds tau, mean TV is at most tanh(tau / 2T) + rho."""
    found = [log_probabilities((first, second, 1.0)) for first, second, _ in pairs]
    rho = float(np.mean([distance > threshold for _, _, distance in found]))
    mean_tv = float(np.mean([numeric.tv(reference, candidate)[0] for reference, candidate, _ in found]))
    assert mean_tv <= float(bounds.expected_tv_bound(threshold, rho)) + SMALL


@given(kernels(), kernels())
def test_answer_tv_bounds_two_token_answers(
    one: tuple[np.ndarray, np.ndarray, float], two: tuple[np.ndarray, np.ndarray, float]
) -> None:
    """TV of independent two-token answers is at most 1 - (1 - TV_1)(1 - TV_2)."""
    first, second = log_probabilities(one), log_probabilities(two)
    joint = [np.outer(np.exp(first[i]), np.exp(second[i])) for i in (0, 1)]
    tv = 0.5 * np.abs(joint[0] - joint[1]).sum()
    steps = [numeric.tv(first[0], first[1])[0], numeric.tv(second[0], second[1])[0]]
    assert tv <= bounds.answer_tv_bound(steps) + SMALL
    assert bounds.answer_tv_bound([0.2, 1.0]) == 1.0


@given(kernels())
def test_importance_identities(pair: tuple[np.ndarray, np.ndarray, float]) -> None:
    """E|w - 1| = 2 TV and E[w log w] = KL to 1e-12, and both bounds on E|w - 1| hold."""
    reference, candidate, _ = log_probabilities(pair)
    moments = importance_moments(reference, candidate)
    assert moments.abs_w_minus_1[0] == pytest.approx(2 * numeric.tv(reference, candidate)[0], abs=SMALL)
    kl = numeric.kl(reference, candidate)[0]
    assert moments.w_log_w[0] == pytest.approx(kl, rel=1e-12, abs=SMALL)
    assert moments.abs_w_minus_1 <= bounds.ratio_deviation_from_log(moments.abs_log_w) + SMALL
    assert moments.abs_w_minus_1 <= bounds.ratio_deviation_from_kl(moments.w_log_w) + 1e-8
    assert moments.lost_mass[0] == 0.0


def test_lost_support_is_reported() -> None:
    """Train mass on tokens that the candidate never samples is reported, not added to a moment."""
    with np.errstate(divide="ignore"):
        moments = importance_moments(np.log([[0.75, 0.25]]), np.log([[1.0, 0.0]]))
    assert moments.lost_mass[0] == pytest.approx(0.25)
    assert moments.abs_w_minus_1[0] == pytest.approx(0.25)


@given(kernels(), st.integers(0, 2**32), st.floats(1.0, 3.0))
def test_gradient_biases_stay_within_their_bounds(
    pair: tuple[np.ndarray, np.ndarray, float], seed: int, limit: float
) -> None:
    """Plain and truncated policy-gradient biases stay within A G E|w - 1| and A G E(w - c)+."""
    reference, candidate, _ = log_probabilities(pair)
    rng = np.random.default_rng(seed)
    advantage = rng.uniform(-1.5, 1.5, size=reference.shape[1])
    score = rng.uniform(-1.0, 1.0, size=(reference.shape[1], 3)) * 2.0 / np.sqrt(3.0)
    served, w = np.exp(candidate[0]), np.exp(reference[0] - candidate[0])

    def gap(weights: np.ndarray) -> float:
        return float(np.linalg.norm(((w - weights) * served * advantage) @ score))

    moments = importance_moments(reference, candidate)
    assert gap(np.ones_like(w)) <= bounds.gradient_bias_bound(moments.abs_w_minus_1, 1.5, 2.0)[0] + 1e-9
    excess = truncation_excess(reference, candidate, limit)
    assert gap(np.minimum(w, limit)) <= bounds.truncated_bias_bound(excess, 1.5, 2.0)[0] + 1e-9


def test_impossible_arguments_are_refused() -> None:
    """Negative distances, NaN, temperature 0, budgets outside 0..1 and empty reward ranges are refused."""
    for distance, temperature in ((-1.0, 1.0), (float("nan"), 1.0), (1.0, 0.0)):
        with pytest.raises(ValueError, match="number"):
            bounds.tv_bound(distance, temperature)
    with pytest.raises(ValueError, match="budget"):
        bounds.expected_tv_bound(0.1, 1.5)
    with pytest.raises(ValueError, match="reward_max"):
        bounds.reward_drift_bound(0.1, 1.0, 0.0)
