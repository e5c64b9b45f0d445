"""Bets on the spread of certified units: under which laws they are fair, and what they gain."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.compiled.build import compile_contract
from contracts.compiled.contract import FleetLayout
from contracts.documents.contract import KernelContract
from contracts.documents.profile import HEALTHY
from contracts.loading.loader import load_as
from contracts.rng import stream
from controller.detect.clauses import plan_clauses
from controller.detect.sequential.accumulate import BETTING, PROBE, Cells, ProbeBatch, accumulate_probes
from controller.detect.sequential.evidence import (
    BETS,
    CLAUSE,
    LEVEL,
    EvidencePlan,
    blank_cells,
    fairness,
    update_evidence,
    update_spread,
)
from controller.detect.sequential.spread import (
    CAP,
    SHARE,
    SPREADS,
    STRETCH,
    TILT_WEIGHTS,
    TILTS,
    bet_on,
    log_normaliser,
    normalisers,
    spread_evalues,
    stretched,
    stretches,
)
from controller.detect.streams.eprocess import MEAN_BETS
from scripts.studies.detection.measured import LIBRARY_FOLDER, shipped

WIDE = STRETCH["probability"]
KERNELS = ("bf16", "w8a8", "bf16-compiled")
units = st.lists(st.floats(0.5, 1.5), min_size=3, max_size=30).map(np.array)


def log_evalues(values: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """Log of the e-values [n, SPREADS] of ``values`` [n] in limits of the clause."""
    return np.asarray(np.minimum(np.array(TILTS) * values[:, None] - psi, CAP))


def one_clause(bets: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """A mean clause on probes with limit 1, as compiled code reads it: one record."""
    clauses = np.zeros(1, dtype=CLAUSE)
    clauses["source"], clauses["kind"] = PROBE, BETTING
    for name in ("threshold", "sense", "null_mean", "upper"):
        clauses[name] = 1.0
    clauses["clip"], clauses["health_range"] = 99.0, 2.0
    clauses["bets"], clauses["weights"] = bets, weights
    return clauses


def _narrowed(law: np.ndarray, share: float) -> np.ndarray:
    """``law`` scaled to mean 1, its spread times ``share``."""
    return np.asarray(1.0 + share * (law / law.mean() - 1.0))


@given(units, st.floats(0.0, WIDE), st.floats(0.0, 1.0))
def test_evalues_are_fair_under_every_narrower_law_within_the_limit(
    law: np.ndarray, width: float, scale: float
) -> None:
    """A law at most as wide as the stretched certified one, with a mean within the limit, has E[e] <= 1."""
    psi = log_normaliser(law, WIDE)
    now = scale * np.maximum(_narrowed(law, width), 0.0)
    if np.isfinite(psi[0]) and now.mean() <= scale + 1e-12:
        assert (np.exp(log_evalues(now, psi)).mean(axis=0) <= 1.0 + 1e-9).all()


@given(units, st.floats(0.0, 3.0), st.floats(0.0, 3.0))
def test_a_larger_unit_never_speaks_less_against_the_clause(
    law: np.ndarray, first: float, second: float
) -> None:
    """The e-value grows with the unit, up to the cap."""
    low, high = log_evalues(np.sort([first, second]), log_normaliser(law, WIDE))
    assert (low <= high).all()
    assert (high <= CAP).all()


def test_a_tilt_gains_more_than_any_bet_from_a_small_shift_of_a_narrow_law() -> None:
    """A tenth over the limit with a spread of 5 %: a bet gains at most log 1.1 per unit, a tilt far more."""
    law = 1.0 + 0.05 * stream(1, "spread").standard_normal(500)
    grown = log_evalues(1.1 * law, log_normaliser(law, WIDE)).mean(axis=0).max()
    assert grown > 3.0 * np.log(1.1)


def test_unknown_or_wide_certified_units_give_no_bet() -> None:
    """Unmeasured, all-zero, too few and widely spread certified units give no bet."""
    wide = np.array([0.0, 0.0, 0.0, 4.0])
    for law in (np.full(5, np.nan), np.zeros(5), np.ones(1), wide):
        assert np.isinf(log_normaliser(law, WIDE)).all()


def test_only_columns_in_known_units_are_bet_on() -> None:
    """Total variation (probability) and KL (nats) are bet on; flips (ratio) and unknown columns are not."""
    found = stretches(("kl_mean@full_vocab", "tv_mean@full_vocab", "top1_flip@full_vocab", "other@x"))
    assert found.tolist() == [STRETCH["nats"], STRETCH["probability"], 0.0, 0.0]


def _laws(kernel: str, metric: str) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
    """Slice, condition, psi, and the condition's units, where there is a bet on ``metric``."""
    samples = shipped(kernel)
    assert samples is not None
    column = samples.metric_names.index(metric)
    for place in samples.slices:
        rows = samples.rows("probe", place)
        certified = samples.values[samples.condition(HEALTHY)][rows, 0][:, column]
        psi = log_normaliser(certified, float(stretches((metric,))[0]))
        for name in samples.condition_names if np.isfinite(psi[0]) else ():
            now = samples.values[samples.condition(name)][rows, 0][:, column]
            if np.isfinite(now).all():
                yield place, name, psi, now


@pytest.mark.parametrize(
    ("metric", "limit", "slices"),
    [("tv_mean", 0.02, None), ("kl_mean", 0.002, None), ("kl_mean", 0.0012, ("prose", "numbers"))],
)
def test_every_measured_condition_that_keeps_the_clause_is_fair(
    metric: str, limit: float, slices: tuple[str, ...] | None
) -> None:
    """Under each measured law with a mean within the shipped contract's limit, every tilt has E[e] <= 1."""
    found = 0
    for kernel in KERNELS:
        for place, _, psi, now in _laws(kernel, f"{metric}@full_vocab"):
            if now.mean() <= limit and (slices is None or place in slices):
                found += 1
                assert (np.exp(log_evalues(now / limit, psi)).mean(axis=0) <= 1.0).all()
    assert found > 5


@pytest.mark.parametrize("kernel", KERNELS)
def test_of_total_variation_every_measured_condition_is_fair_at_the_limit(kernel: str) -> None:
    """Under each measured law of TV, healthy or faulty, scaled to the limit, every tilt has E[e] <= 1."""
    for _, _, psi, now in _laws(kernel, "tv_mean@full_vocab"):
        assert (np.exp(log_evalues(now / now.mean(), psi)).mean(axis=0) <= 1.0).all()


def test_of_divergence_some_laws_would_not_be_fair_at_the_limit() -> None:
    """KL: 17 of 84 measured laws of bf16, scaled to the limit, are wider than the null."""
    evalues = [
        np.exp(log_evalues(now / now.mean(), psi)).mean(axis=0) @ np.array(TILT_WEIGHTS)
        for _, _, psi, now in _laws("bf16", "kl_mean@full_vocab")
    ]
    assert (sum(one > SHARE for one in evalues), len(evalues)) == (17, 84)


def test_arl0_under_the_stretched_law_is_not_below_the_declared_one() -> None:
    """Bets and tilts together, on units of the widest law of the null: mean run length at least declared."""
    law = 1.0 + 0.1 * stream(2, "spread").standard_normal(48)
    psi, declared, runs = log_normaliser(law, WIDE), 200.0, 200
    wide, evalues = stretched(law, WIDE), np.empty(SPREADS)
    rng, lengths = stream(3, "spread"), []
    clause = one_clause(np.array([0.12, 0.4, 0.85]), np.array([0.3, 0.35, 0.35]))[0]
    for _ in range(runs):
        cell, length = blank_cells(1)[0], 0
        while cell[LEVEL] < declared and length < 20 * declared:
            x = float(rng.choice(wide))
            update_evidence(cell, x, clause)
            spread_evalues(evalues, x, fairness(psi))
            update_spread(cell, evalues)
            length += 1
        lengths.append(length)
    standard_error = np.std(lengths) / np.sqrt(runs)
    assert np.mean(lengths) + 2.0 * standard_error >= declared


def test_the_update_mixes_bets_and_tilts_as_stated() -> None:
    """After one unit the level is the weighted evidence of bets and tilts, each from one start."""
    cell, psi = blank_cells(1)[0], log_normaliser(1.0 + 0.1 * stream(4, "spread").standard_normal(48), WIDE)
    bets, weights = np.array([0.1, 0.4, 0.8]), np.array([0.2, 0.3, 0.5])
    update_evidence(cell, 1.3, one_clause(bets, weights)[0])
    evalues = np.empty(SPREADS)
    spread_evalues(evalues, 1.3, fairness(psi))
    update_spread(cell, evalues)
    tilts = np.exp(log_evalues(np.array([1.3]), psi))[0]
    np.testing.assert_allclose(evalues, tilts)
    np.testing.assert_allclose(cell[BETS:LEVEL], tilts)
    level = (1.0 - SHARE) * weights @ (1.0 + 0.3 * bets) + np.array(TILT_WEIGHTS) @ tilts
    np.testing.assert_allclose(cell[LEVEL], level)
    assert np.diff(np.log2(TILTS)).tolist() == [1.0] * (len(TILTS) - 1)


def test_a_unit_without_a_bet_counts_only_in_the_sum_over_slices() -> None:
    """NaN: the slice's own stream is unchanged; the stream over all slices gets an e-value of 1."""
    nan, yes, zero = np.full(SPREADS, np.nan), np.ones((1, 1), dtype=np.bool_), np.zeros(1, dtype=np.int64)
    clauses = one_clause(np.array(MEAN_BETS), np.full(BETS, 1.0 / 3.0))
    plan = EvidencePlan(clauses=clauses, applies=yes, gain=2.0, fair=nan[None, None, None])
    own, whole = blank_cells(1, 1, 1), blank_cells(1, 1, 1)
    cells = Cells(by_slice=own, over_slices=whole, health=np.ones((1, 1, 1, 3)), wanted=~yes[None])
    probes = ProbeBatch(
        received=yes[0], replica=zero, slice=zero, values=np.full((1, 1), 9.0), subject_of=zero
    )
    accumulate_probes(cells, probes, plan)
    assert not own[..., BETS:LEVEL].any()
    np.testing.assert_array_equal(whole[..., BETS:LEVEL], 1.0)


def test_normalisers_show_where_there_is_a_bet() -> None:
    """Finite for TV and KL of measured kernels, NaN on slices that spread too far, inf for other clauses."""
    samples = shipped("w8a8")
    assert samples is not None
    layout = FleetLayout(
        kernels=("w8a8", "none"),
        slices=samples.slices,
        replicas=("a", "b"),
        known_good=1,
        replica_kernel=np.array([0, 1], dtype=np.int64),
        probe_metrics=samples.metric_names,
    )
    contract = compile_contract(load_as(KernelContract, LIBRARY_FOLDER / "serving-pool.yaml"), layout)
    certified = np.full((2, len(samples.slices), 48, len(samples.metric_names)), np.nan)
    for place, name in enumerate(samples.slices):
        rows = samples.rows("probe", name)
        certified[0, place, : rows.size] = samples.values[samples.condition(HEALTHY)][rows, 0]
    stretch, plan = stretches(samples.metric_names), plan_clauses(contract)
    psi = normalisers(contract, plan, certified, stretch)
    means = bet_on(contract, plan, stretch)
    of_tv = np.array([name == "N-tv-mean" for name in contract.clause_ids])
    named = [contract.clause_ids[c] for c in np.flatnonzero(means)]
    assert named == ["N-kl-mean", "N-kl-mean-numbers", "N-tv-mean"]
    assert np.isfinite(psi[0][:, of_tv]).any()
    assert not np.isinf(psi[0][:, of_tv]).any()
    assert np.isinf(psi[1]).all()
    assert np.isinf(psi[0][:, ~means]).all()
