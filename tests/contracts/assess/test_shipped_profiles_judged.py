"""Shipped profiles judged by shipped contracts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from contracts.assess import bound_table
from contracts.assess.evaluate import evaluate
from contracts.assess.observations import from_samples
from contracts.assess.propose import ProposalTerms, SampledKernel, propose
from contracts.assess.verdicts import ContractVerdict
from contracts.documents import KernelContract, KernelProfile
from contracts.loading.loader import load_as, load_document
from contracts.metrics import METRICS
from scripts.cli.judging.inputs import known_sources, load_judged, load_profile
from tests.support.paths import LIBRARY

PROFILES = sorted((LIBRARY / "profiles").glob("*.yaml"))
CONTRACTS = [
    path for path in sorted(LIBRARY.glob("*.yaml")) if isinstance(load_document(path), KernelContract)
]


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_measured_drift_stays_within_the_bounds_of_its_sources(path: Path) -> None:
    """The worst-case bounds of a healthy kernel's own sources cover every drift measured on it."""
    judged = load_judged(str(path), "healthy", "all")
    largest = judged.observations.values("linf_max@full_vocab", None)
    assert largest is not None
    assert judged.profile is not None
    assert largest.max() <= sum(source.distance for source in known_sources(judged.profile))


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_measured_quantities_stay_within_the_chain(path: Path) -> None:
    """On every slice and condition of a shipped profile each measurement is within its bound."""
    _, samples = load_profile(path)
    for condition in samples.condition_names:
        rows = bound_table.sample_rows(from_samples(samples, "", condition, "all"))
        for row in rows:
            assert row.measured is None or row.measured <= row.sharp * (1 + 1e-6) + 1e-9, (condition, row)


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_metrics_that_the_small_model_cannot_show_are_not_measured(path: Path) -> None:
    """Metrics of labelled behaviour are listed as not measured and have no column in the samples."""
    profile = load_as(KernelProfile, path)
    _, samples = load_profile(path)
    for name in ("refusal_rate_gap", "parseability_gap"):
        assert name in profile.spec.not_measured
        assert METRICS[name].columns[0] not in samples.metric_names


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_top_k_columns_are_lower_bounds_on_measured_prompts(path: Path) -> None:
    """No measured top-k estimate exceeds the full-vocabulary value of the same prompt."""
    _, samples = load_profile(path)
    for name in ("kl_mean", "tv_mean"):
        if f"{name}@top_k" in samples.metric_names:
            low, full = (samples.metric_names.index(f"{name}@{e}") for e in ("top_k", "full_vocab"))
            gap = samples.values[..., low] - samples.values[..., full]
            assert np.nanmax(gap) <= 1e-6


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_a_proposal_for_a_shipped_kernel_is_kept_by_it(path: Path) -> None:
    """Unseen prompts fail no clause but the reward's, and that one only if the proposal says so."""
    profile, samples = load_profile(path)
    made = propose("made", [SampledKernel(name=profile.spec.kernel, samples=samples)], ProposalTerms())
    told = {clause.id for clause in made.spec.clauses if "do not all keep it" in clause.reason}
    for split in ("probe", "traffic"):
        result = evaluate(made, from_samples(samples, "", "healthy", split))
        assert {each.clause_id for each in result.clauses if each.verdict is ContractVerdict.FAIL} <= told


def test_a_rounded_cache_format_is_a_source_of_its_own() -> None:
    """The reference keeps keys and values unrounded, so an 8-bit cache is among a kernel's sources."""
    for path in PROFILES:
        profile, _ = load_profile(path)
        named = {source.source for source in known_sources(profile)}
        assert ("kv cache" in named) == (profile.spec.fingerprint.kv_cache_dtype != "auto"), path.stem


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda path: path.stem)
def test_shipped_contracts_judge_shipped_profiles(contract: Path) -> None:
    """Every shipped kernel contract gives a verdict on every shipped profile."""
    terms = load_as(KernelContract, contract)
    for path in PROFILES:
        result = evaluate(terms, load_judged(str(path), "healthy", "all").observations)
        assert len(result.clauses) > 0
