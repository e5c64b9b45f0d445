"""Assumptions of the gradient bounds."""

from __future__ import annotations

from contracts.assess.assumptions import AssumptionStanding, check_assumptions
from contracts.assess.observations import Observations
from contracts.documents.contract import RlAssumptions
from tests.support.documents.contracts_made import observed

DECLARED = RlAssumptions(advantage_max=2.0, score_norm_max=3.0, reward_min=0.0, reward_max=1.0)


def standings(observations: Observations | None, **known: bool) -> list[str]:
    """Standing of A1, A2 and A3."""
    return [str(found.standing) for found in check_assumptions(observations, DECLARED, **known)]


def test_without_samples_nothing_is_claimed() -> None:
    """Without samples no assumption is said to hold, and truncated sampling alone refutes A1."""
    assert standings(None) == ["not_checkable"] * 3
    assert standings(None, truncated_sampling=True) == ["fails", "not_checkable", "not_checkable"]


def test_samples_within_declared_bounds_hold() -> None:
    """Advantages and score norms within their declared bounds hold, and one beyond fails."""
    good = observed(kl=[0.1], advantage=[-2.0, 1.0], score_norm=[3.0])
    assert standings(good, truncated_sampling=False) == ["holds"] * 3
    assert standings(good)[0] == "not_checkable"
    assert standings(observed(advantage=[-2.1], score_norm=[3.1])) == ["not_checkable", "fails", "fails"]


def test_lost_mass_refutes_support_overlap() -> None:
    """Train mass without support on any observation refutes A1, with the mass as evidence."""
    found = check_assumptions(observed(lost_mass=[0.0, 0.25]), DECLARED, truncated_sampling=False)[0]
    assert found.standing is AssumptionStanding.FAILS
    assert "0.25" in found.evidence
    assert standings(observed(lost_mass=[0.0]), truncated_sampling=False)[0] == "holds"


def test_undeclared_bounds_are_not_checkable() -> None:
    """Without a declared bound the largest value is evidence and not a verdict."""
    found = check_assumptions(observed(advantage=[1.5]), None)[1]
    assert found.standing is AssumptionStanding.NOT_CHECKABLE
    assert "1.5" in found.evidence
