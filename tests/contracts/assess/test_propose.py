"""Proposed contracts: kept by the kernels they are made for, broken by measured faults, with reasons."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.assess.evaluate import evaluate
from contracts.assess.gate import Waiver
from contracts.assess.observations import from_samples
from contracts.assess.propose import ProposalTerms, SampledKernel, propose
from contracts.assess.proposed_clauses import quantile_limit, round_up
from contracts.assess.samples import KernelSamples
from contracts.assess.verdicts import ContractVerdict
from contracts.documents.contract import KernelContract
from contracts.loading.loader import dump_text, load_text
from tests.support.documents.contracts_made import kernel_samples


def proposed(*samples: KernelSamples, margin: float = 2.0) -> KernelContract:
    """A contract for kernels k0, k1, ... measured as ``samples``."""
    kernels = [SampledKernel(name=f"k{i}", samples=each) for i, each in enumerate(samples)]
    return propose("made", kernels, ProposalTerms(margin=margin))


def test_a_proposal_is_a_valid_document() -> None:
    """A proposal passes the loader unchanged, with a reason for every clause."""
    made = proposed(kernel_samples())
    assert load_text(dump_text(made), "made.yaml") == made
    assert all(len(clause.reason) > 40 for clause in made.spec.clauses)
    assert "requantise-w4" in made.spec.clauses[0].reason


def test_the_kernel_keeps_its_own_contract_and_a_fault_breaks_it() -> None:
    """Held-out prompts of the healthy kernel pass, those of a tenfold drift fail."""
    samples = kernel_samples()
    made = proposed(samples)
    serving = Waiver(clause_id="O-fingerprint", slice="*", reason="only a server shows it")
    healthy = evaluate(made, from_samples(samples, "", "healthy", "all"), waivers=[serving])
    faulty = evaluate(made, from_samples(samples, "", "requantise-w4", "all"))
    assert healthy.verdict is ContractVerdict.PASS
    assert faulty.verdict is ContractVerdict.FAIL


def test_several_kernels_all_keep_it() -> None:
    """A contract for two kernels takes its thresholds from the worse one and names it."""
    worse = kernel_samples(scale=4e-4, seed=1)
    made = proposed(kernel_samples(), worse)
    alone = proposed(worse)
    both = [[c.threshold for c in each.spec.clauses if c.metric != "top1_flip"] for each in (made, alone)]
    assert both[0] == both[1]
    assert "kernel k1" in made.spec.clauses[0].reason


def test_only_certify_prompts_count() -> None:
    """Changing every probe and traffic value changes no clause."""
    samples = kernel_samples()
    values = samples.values.copy()
    for split in ("probe", "traffic"):
        values[:, samples.rows(split)] *= 100
    assert proposed(dataclasses.replace(samples, values=values)).spec == proposed(samples).spec


@given(st.floats(1.0, 10.0), st.floats(1.0, 5.0))
def test_thresholds_grow_with_the_margin(margin: float, factor: float) -> None:
    """A larger margin never lowers a threshold."""
    near = proposed(kernel_samples(prompts=20), margin=margin).spec.clauses
    far = {c.id: c for c in proposed(kernel_samples(prompts=20), margin=margin * factor).spec.clauses}
    assert all(far[c.id].threshold >= c.threshold for c in near if c.id in far)


def test_percentiles_are_left_out_where_they_can_never_pass() -> None:
    """With too few prompts in the file a percentile clause is not proposed."""
    few = proposed(kernel_samples(prompts=10))
    assert not any(clause.metric.endswith("p95") for clause in few.spec.clauses)
    assert any(clause.metric.endswith("p95") for clause in proposed(kernel_samples()).spec.clauses)


def test_every_slice_is_a_measured_one() -> None:
    """A proposal names only measured slices, one of them the default, so it can be judged everywhere."""
    slices = proposed(kernel_samples()).spec.slices
    assert [(each.name, each.default) for each in slices] == [("code", False), ("prose", True)]


def test_reward_clause_is_the_tolerance_itself() -> None:
    """The reward clause bounds mean TV by the tolerated drift, whatever the kernel."""
    terms = ProposalTerms(reward_drift=0.02)
    kernels = [SampledKernel(name="a", samples=kernel_samples())]
    clause = next(c for c in propose("made", kernels, terms).spec.clauses if c.metric == "tv_mean")
    assert (clause.threshold, clause.budget, clause.level) == (0.02, 0.0, "L3")


def test_without_measurements_nothing_is_proposed() -> None:
    """Samples without full-vocabulary values are refused rather than filled in."""
    samples = kernel_samples()
    empty = dataclasses.replace(samples, values=np.full_like(samples.values, np.nan))
    with pytest.raises(ValueError, match="no kernel has healthy certify prompts"):
        proposed(empty)


@pytest.mark.parametrize(
    "changes", [{"margin": 0.5}, {"margin": float("nan")}, {"confidence": 1.0}, {"reward_drift": 0.0}]
)
def test_impossible_terms_are_refused(changes: dict[str, float]) -> None:
    """A margin below 1, a confidence of 1 and a tolerance of 0 are refused."""
    with pytest.raises(ValueError, match=next(iter(changes)).replace("_", " ")):
        ProposalTerms(**changes)


@given(st.floats(1e-12, 1e12))
def test_rounding_up_never_lowers(value: float) -> None:
    """Two significant digits at or above the value, within ten percent."""
    rounded = round_up(value)
    assert value * (1 - 1e-8) <= rounded <= value * 1.1 + 1e-300
    assert float(f"{rounded:.1e}") == rounded


def test_quantile_limit_covers() -> None:
    """The order-statistic limit lies above the true quantile as often as stated."""
    rng = np.random.default_rng(2)
    covered = np.mean([quantile_limit(rng.random(100), 0.9, 0.95)[0] >= 0.9 for _ in range(2000)])
    assert covered >= 0.94
    value, how = quantile_limit(np.arange(10.0), 0.95, 0.95)
    assert value == 9.0
    assert "too few" in how
