"""Which estimator judges a clause, given the measured columns."""

from __future__ import annotations

from contracts.rules.estimators import first_measured, with_measured_estimators
from tests.support.documents.contracts_made import contract

EXACT, BOUND = "kl_mean@full_vocab", "kl_mean@top_k"
KL = contract({"metric": "kl_mean", "threshold": 1e-3})


def test_a_measured_clause_is_unchanged() -> None:
    """With its own estimator measured the contract is the same object, whatever else was measured."""
    found = with_measured_estimators(KL, {EXACT, BOUND})
    assert found.contract is KL
    assert found.notes() == []


def test_a_clause_is_judged_by_a_measured_estimator() -> None:
    """Without the exact column the bound judges, and is named; the threshold is the contract's."""
    found = with_measured_estimators(KL, {BOUND})
    clause = found.contract.spec.clauses[0]
    assert clause.estimator == "top_k"
    assert clause.threshold == KL.spec.clauses[0].threshold
    assert found.replaced == (clause.id,)
    assert "lower bound" in found.notes()[0]


def test_a_clause_without_a_measurement_is_reported() -> None:
    """Without any column of its metric the clause is kept, and reported as not judged."""
    found = with_measured_estimators(KL, {"tv_mean@top_k"})
    assert found.contract is KL
    assert found.unmeasured == (KL.spec.clauses[0].id,)
    assert "not judged" in found.notes()[0]


def test_the_most_exact_estimator_comes_first() -> None:
    """Exact before bound before sampled; None if nothing is measured."""
    assert first_measured("kl_mean", {BOUND, EXACT}) == EXACT
    assert first_measured("kl_mean", {BOUND}) == BOUND
    assert first_measured("kl_mean", set()) is None
