"""The shipped documents load, compile, give reasons, and separate the measured kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from contracts.compiled.build import compile_contract
from contracts.compiled.contract import FleetLayout
from contracts.documents import KernelContract, KernelProfile, MetaContract
from contracts.loading.loader import cautions, document_sha256, dump_text, load_as, load_document, load_text
from contracts.loading.uris import resolve_uri
from contracts.metrics import COLUMN_NAMES, GENERATION_COLUMNS, METRICS, PASSIVE_COLUMNS
from tests.support.paths import LIBRARY

#: Training recipes are not cluster documents and have their own loader and test.
SHIPPED = sorted(path for path in LIBRARY.rglob("*.yaml") if path.parent.name != "recipes")
CONTRACTS = (
    "minimal-train-infer",
    "rl-post-training",
    "serving-generation",
    "serving-pool",
    "serving-pool-full-vocab",
)
#: The two contracts for the same pool, by the estimator they are judged on.
SERVING = [("serving-pool", "top_k"), ("serving-pool-full-vocab", "full_vocab")]


def contract(name: str) -> KernelContract:
    """The shipped contract ``name``."""
    return load_as(KernelContract, LIBRARY / f"{name}.yaml")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_documents_load_and_survive_dumping(path: Path) -> None:
    """Every shipped document is valid, reads back the same, and means the same to kubectl."""
    document = load_document(path)
    again = load_text(dump_text(document), "again.yaml")
    assert again == document
    assert document_sha256(again) == document_sha256(document)
    assert cautions(path.read_text(encoding="utf-8"), path.name) == []


@pytest.mark.parametrize("name", CONTRACTS)
def test_shipped_contracts_compile(name: str) -> None:
    """Every clause of a shipped contract compiles for a fleet with the standard probe columns."""
    document = contract(name)
    slices = tuple(slice_.name for slice_ in document.spec.slices)
    layout = FleetLayout(
        kernels=("a",),
        slices=slices,
        replicas=("a-0",),
        replica_kernel=np.zeros(1, dtype=np.int64),
        probe_metrics=(*COLUMN_NAMES, *GENERATION_COLUMNS, *PASSIVE_COLUMNS),
        known_good=0,
    )
    found = compile_contract(document, layout)
    assert found.clause_ids == tuple(clause.id for clause in document.spec.clauses)
    assert found.guard_threshold < found.fallback_threshold


@pytest.mark.parametrize("name", CONTRACTS)
def test_shipped_clauses_state_their_unit_and_reason(name: str) -> None:
    """Each clause gives a reason of at least six words, and a unit unless it counts mismatches."""
    for clause in contract(name).spec.clauses:
        assert len(clause.reason.split()) >= 6, clause.id
        assert clause.unit == METRICS[clause.metric].unit or clause.threshold == 0.0, clause.id


def test_the_four_families_are_all_there() -> None:
    """The RL contract has clauses of every family, under the names of the design."""
    ids = {clause.id for clause in contract("rl-post-training").spec.clauses}
    assert {"N-RLHF-1", "N-RLHF-2", "S-RLHF-1-reward", "S-RLHF-1-kl", "R-RLHF-1"} <= ids
    assert {clause.family for clause in contract("rl-post-training").spec.clauses} == set("NSRO")


def measured_mean_kl(kernel: str, condition: str, name: str, estimator: str) -> float:
    """Mean over the certify prompts of a slice of a shipped profile, nats."""
    profile = load_as(KernelProfile, LIBRARY / "profiles" / f"{kernel}.yaml")
    measures = next(found.measures for found in profile.spec.conditions if found.name == condition)
    means = [m.mean for m in measures if (m.slice, m.metric, m.estimator) == (name, "kl_mean", estimator)]
    assert len(means) == 1
    return means[0]


@pytest.mark.parametrize(("which", "by"), SERVING)
@pytest.mark.parametrize("name", ["code", "prose", "long_context"])
def test_the_serving_contracts_separate_the_measured_kernels(name: str, which: str, by: str) -> None:
    """bf16 and int8 lie under two thirds of the mean-KL threshold, int8 without VNNI and 4 bits over it."""
    clause = {c.id: c for c in contract(which).spec.clauses}["N-kl-mean"]
    assert clause.estimator == by
    for kernel in ("bf16", "w8a8"):
        assert measured_mean_kl(kernel, "healthy", name, by) < 2.0 / 3.0 * clause.threshold
    assert measured_mean_kl("w8a8", "isa-no-vnni", name, by) > clause.threshold
    assert measured_mean_kl("bf16", "requantise-w4", name, by) > clause.threshold


@pytest.mark.parametrize(("which", "by"), SERVING)
def test_the_hard_clause_separates_int8_with_and_without_vnni(which: str, by: str) -> None:
    """On numbers, int8 lies under the hard threshold and int8 without VNNI over it."""
    clause = {c.id: c for c in contract(which).spec.clauses}["N-kl-mean-numbers"]
    assert clause.budget == 0.0
    healthy = measured_mean_kl("w8a8", "healthy", "numbers", by)
    assert healthy < clause.threshold < measured_mean_kl("w8a8", "isa-no-vnni", "numbers", by)


def test_the_serving_contracts_differ_only_in_what_numbers_are_judged_on() -> None:
    """Slices, levels, other families and detection are the same."""
    one, other = (contract(which).spec for which, _ in SERVING)
    assert (one.slices, one.detection, one.escalation) == (other.slices, other.detection, other.escalation)
    left_out = {"estimator", "threshold", "reason"}
    for mine, theirs in zip(one.clauses, other.clauses, strict=True):
        assert mine.model_dump(exclude=left_out) == theirs.model_dump(exclude=left_out)
        assert mine.family == "N" or mine == theirs


def test_the_meta_contract_covers_the_design() -> None:
    """Each promise of the design's meta-contract has a clause, checked offline, online or both."""
    document = load_as(MetaContract, LIBRARY / "meta-contract.yaml")
    metrics = {clause.metric for clause in document.spec.clauses}
    assert len(metrics) == len(document.spec.clauses) == 18
    checked = {clause.checked for clause in document.spec.clauses}
    assert checked == {"offline", "online", "both"}


def test_package_uris_reach_the_shipped_documents() -> None:
    """``package:contracts/library/...`` is the shipped file wherever the package is installed."""
    path = resolve_uri("package:contracts/library/serving-pool.yaml", "anywhere.yaml")
    assert load_document(path) == contract("serving-pool")
