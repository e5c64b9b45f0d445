"""Bets on how widely certified units spread: what they are fair under, and what they gain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.compile import compile_contract
from contracts.detect.clauses import plan_clauses
from contracts.detect.fold_compiled import BETS, GROUPS, LEVEL, blank_cells, take, take_spread
from contracts.detect.spread import (
    CAP,
    STRETCH,
    TILTS,
    bounded,
    log_evalues,
    log_normaliser,
    normalisers,
    within_one,
)
from contracts.documents.contract import KernelContract
from contracts.layout import FleetLayout
from contracts.loader import load_as
from contracts.samples import HEALTHY
from contracts.streams import stream
from scripts.detect_measured import LIBRARY, shipped

units = st.lists(st.floats(0.5, 1.5), min_size=3, max_size=30).map(np.array)


def _narrowed(law: np.ndarray, share: float) -> np.ndarray:
    """``law`` scaled to mean 1, its spread times ``share``."""
    return np.asarray(1.0 + share * (law / law.mean() - 1.0))


@given(units, st.floats(0.0, STRETCH), st.floats(0.0, 1.0))
def test_evalues_are_fair_under_every_narrower_law_within_the_limit(
    law: np.ndarray, width: float, scale: float
) -> None:
    """A law at most ``STRETCH`` times as wide as certified, with a mean within the limit, has E[e] <= 1."""
    psi = log_normaliser(law)
    now = scale * np.maximum(_narrowed(law, width), 0.0)
    if np.isfinite(psi[0]) and now.mean() <= scale + 1e-12:
        assert (np.exp(log_evalues(now, psi)).mean(axis=0) <= 1.0 + 1e-9).all()


@given(units, st.floats(0.0, 3.0), st.floats(0.0, 3.0))
def test_a_larger_unit_never_speaks_less_against_the_clause(
    law: np.ndarray, first: float, second: float
) -> None:
    """e grows with the unit, up to the cap."""
    low, high = log_evalues(np.sort([first, second]), log_normaliser(law))
    assert (low <= high).all()
    assert (high <= CAP).all()


def test_a_small_shift_of_a_narrow_law_grows_faster_than_any_bet() -> None:
    """A tenth over the limit with a spread of 5 %: a bet can gain log 1.1 per unit, a tilt far more."""
    law = 1.0 + 0.05 * stream(1, "spread").standard_normal(500)
    grown = log_evalues(1.1 * law, log_normaliser(law)).mean(axis=0).max()
    assert grown > 3.0 * np.log(1.1)


def test_there_is_no_bet_without_knowledge() -> None:
    """Unmeasured, all zero, too few and widely spread certified units give none."""
    wide = np.array([0.0, 0.0, 0.0, 4.0])
    for law in (np.full(5, np.nan), np.zeros(5), np.ones(1), wide):
        assert np.isinf(log_normaliser(law)).all()


def test_only_probabilities_are_bet_on() -> None:
    """Total variation lies within 0..1 and is; KL, flips as a ratio, and unknown columns are not."""
    found = within_one(("kl_mean@full_vocab", "tv_mean@full_vocab", "top1_flip@full_vocab", "other@x"))
    assert found.tolist() == [False, True, False, False]


@pytest.mark.parametrize("kernel", ["bf16", "w8a8", "bf16-compiled"])
def test_every_measured_condition_is_within_the_named_null(kernel: str) -> None:
    """Each measured law of a shipped kernel, scaled to its limit, is fair: the stretch is wide enough."""
    samples = shipped(kernel)
    assert samples is not None
    rate = np.array([samples.metric_names.index("tv_mean@full_vocab")])
    for place in samples.slices:
        rows = samples.rows("probe", place)
        psi = log_normaliser(samples.values[samples.condition(HEALTHY)][rows, 0][:, rate[0]])
        if np.isinf(psi[0]):
            continue
        for name in samples.condition_names:
            now = samples.values[samples.condition(name)][rows, 0][:, rate[0]]
            if np.isfinite(now).all():
                assert np.exp(log_evalues(now / now.mean(), psi)).mean() <= 1.0


def test_arl0_under_the_stretched_law_is_not_below_the_declared_one() -> None:
    """Bets and tilts together, on units of the widest law of the null: mean run length at least declared."""
    law = 1.0 + 0.1 * stream(2, "spread").standard_normal(48)
    psi, declared, runs = log_normaliser(law), 200.0, 200
    wide = np.maximum(1.0 + STRETCH * (law / law.mean() - 1.0), 0.0)
    wide = wide / wide.mean()
    rng, lengths = stream(3, "spread"), []
    bets, weights = np.array([0.12, 0.4, 0.85]), np.array([0.3, 0.35, 0.35])
    for _ in range(runs):
        cell, length = blank_cells(1)[0], 0
        while cell[LEVEL] < declared and length < 20 * declared:
            x = float(rng.choice(wide))
            take(cell, x, 2, 1.0, bets, weights)
            take_spread(cell, x, psi, False)
            length += 1
        lengths.append(length)
    standard_error = np.std(lengths) / np.sqrt(runs)
    assert np.mean(lengths) + 2.0 * standard_error >= declared


def test_the_fold_mixes_as_stated() -> None:
    """One unit: the level is 3/4 of the bets' and 1/4 of the tilts' evidence, each over one start."""
    cell, psi = blank_cells(1)[0], log_normaliser(1.0 + 0.1 * stream(4, "spread").standard_normal(48))
    bets, weights = np.array([0.1, 0.4, 0.8]), np.array([0.2, 0.3, 0.5])
    take(cell, 1.3, 2, 1.0, bets, weights)
    take_spread(cell, 1.3, psi, False)
    tilts = np.exp(log_evalues(np.array([1.3]), psi))[0]
    np.testing.assert_allclose(cell[BETS:GROUPS], tilts)
    np.testing.assert_allclose(cell[LEVEL], 0.75 * weights @ (1.0 + 0.3 * bets) + 0.25 * tilts.mean())


def test_a_unit_that_is_not_bet_on_counts_in_the_sum_over_slices_alone() -> None:
    """NaN: the stream of the slice stays as it is; the one over all slices gets an e-value of 1."""
    psi = np.full(len(TILTS), np.nan)
    own, whole = blank_cells(1)[0], blank_cells(1)[0]
    take_spread(own, 9.0, psi, False)
    take_spread(whole, 9.0, psi, True)
    assert not own.any()
    np.testing.assert_array_equal(whole[BETS:GROUPS], 1.0)


def test_normalisers_say_where_there_is_a_bet() -> None:
    """Finite for TV of measured kernels, NaN on slices that spread too far, inf for every other clause."""
    samples = shipped("w8a8")
    assert samples is not None
    layout = FleetLayout(
        kernels=("w8a8", "none"), slices=samples.slices, replicas=("a", "b"), known_good=1,
        replica_kernel=np.array([0, 1], dtype=np.int64), probe_metrics=samples.metric_names,
    )  # fmt: skip
    contract = compile_contract(load_as(KernelContract, LIBRARY / "serving-pool.yaml"), layout)
    certified = np.full((2, len(samples.slices), 48, len(samples.metric_names)), np.nan)
    for place, name in enumerate(samples.slices):
        rows = samples.rows("probe", name)
        certified[0, place, : rows.size] = samples.values[samples.condition(HEALTHY)][rows, 0]
    columns, plan = within_one(samples.metric_names), plan_clauses(contract)
    psi = normalisers(contract, plan, certified, columns)
    of_tv = bounded(contract, plan, columns)
    assert [contract.clause_ids[c] for c in np.flatnonzero(of_tv)] == ["N-tv-mean"]
    assert np.isfinite(psi[0][:, of_tv]).any()
    assert not np.isinf(psi[0][:, of_tv]).any()
    assert np.isinf(psi[1]).all()
    assert np.isinf(psi[0][:, ~of_tv]).all()
