"""Rules of contracts, pools and profiles: a valid document, one change, and the message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.documents.documents_written import envelope
from tests.support.documents.rule_cases import Change, Tree, problems
from tests.support.fleets.synthetic import contract_document, pool_spec
from tests.support.fleets.synthetic_kernels import KERNELS, profile_document, write_samples


def clause(place: int, **fields: object) -> Change:
    """Change clause ``place``; a field set to None is removed."""

    def change(spec: Any) -> None:
        row = spec["clauses"][place] | fields
        spec["clauses"][place] = {key: value for key, value in row.items() if value is not None}

    return change


CONTRACT_RULES: dict[str, tuple[Change, str, str]] = {
    "unknown slice": (clause(0, slices=["cod"]), "spec.clauses[0].slices[0]", "got 'cod'; correct the name"),
    "slice twice": (clause(0, slices=["code", "code"]), "spec.clauses[0].slices[1]", "'code' again"),
    "no default": (
        lambda s: s["slices"][0].update(default=False),
        "spec.slices",
        "one slice with default: true",
    ),
    "two defaults": (lambda s: s["slices"][1].update(default=True), "spec.slices", "got code, prose"),
    "slice name twice": (lambda s: s["slices"][1].update(name="code"), "spec.slices[1].name", "'code' again"),
    "id twice": (clause(1, id="N-kl"), "spec.clauses[1].id", "'N-kl' again (also entry 0)"),
    "unknown metric": (clause(0, metric="kl_meen"), "spec.clauses[0].metric", "did you mean kl_mean"),
    "estimator": (
        clause(0, estimator="sampled"),
        "spec.clauses[0].estimator",
        "expected full_vocab or top_k",
    ),
    "unit": (clause(0, unit="bits"), "spec.clauses[0].unit", "expected nats, got bits"),
    "tv above one": (
        clause(1, threshold=1.5),
        "spec.clauses[1].threshold",
        "from 0 to 1 probability, got 1.5",
    ),
    "vacuous match": (clause(4, threshold=1.0), "spec.clauses[4].threshold", "it counts mismatches"),
    "late latency": (
        clause(3, metric="latency_ms_p95", threshold=200000.0),
        "spec.clauses[3].threshold",
        "0 to 120000 ms",
    ),
    "error below one": (
        clause(0, metric="token_prob_error", threshold=0.9, clip=None),
        "spec.clauses[0].threshold",
        "from 1",
    ),
    "null rate missing": (
        clause(4, null_rate=None),
        "spec.clauses[4].null_rate",
        "alarms at the first observation",
    ),
    "hard by users' own answers": (
        clause(0, metric="surprise_outside_rate", estimator="none", unit="ratio", clip=1.0, level="L2"),
        "spec.clauses[0].level",
        "expected L1 for surprise_outside_rate, got L2",
    ),
    "no budget by users' own answers": (
        clause(0, metric="surprise_outside_rate", estimator="none", unit="ratio", clip=1.0, budget=0.0),
        "spec.clauses[0].budget",
        "a budget above 0 for surprise_outside_rate",
    ),
    "null rate of a mean": (clause(0, null_rate=0.1), "spec.clauses[0].null_rate", "leave it out"),
    "percentile's budget": (
        clause(0, metric="kl_p95", clip=None, budget=0.1),
        "spec.clauses[0].budget",
        "at most 0.05, the share",
    ),
    "clip of a rate": (clause(4, clip=1.0), "spec.clauses[4].clip", "judged by a rate"),
    "clip too low": (clause(0, clip=1e-4), "spec.clauses[0].clip", "could never pass"),
    "thresholds crossed": (
        lambda s: s["escalation"].update(guard_threshold=3.0),
        "spec.escalation.fallback_threshold",
        "a value > guard_threshold 3, got 2",
    ),
    "refined twice": (
        lambda s: s["escalation"].update(
            refinements=[
                {"family": "N", "level": "L2", "action": "guard", "reason": "a"},
                {"family": "N", "level": "L2", "action": "rollback", "reason": "b"},
            ]
        ),
        "spec.escalation.refinements[1]",
        "'N L2' again",
    ),
    "reward range": (
        lambda s: s.update(
            assumptions={
                "temperature": 1.0,
                "advantage_max": 1.0,
                "score_norm_max": 1.0,
                "reward_min": 1.0,
                "reward_max": 1.0,
            }
        ),
        "spec.assumptions.reward_max",
        "a value > reward_min 1",
    ),
    "two temperatures": (
        lambda s: s.update(
            assumptions={
                "temperature": 2.0,
                "advantage_max": 1.0,
                "score_norm_max": 1.0,
                "reward_min": 0.0,
                "reward_max": 1.0,
            }
        ),
        "spec.assumptions.temperature",
        "the contract's temperature 1, got 2",
    ),
    "negative threshold": (
        clause(0, threshold=-1e-3),
        "spec.clauses[0].threshold",
        "a value >= 0, got -0.001",
    ),
    "budget above one": (clause(0, budget=1.5), "spec.clauses[0].budget", "a value <= 1, got 1.5"),
    "budget below zero": (clause(0, budget=-0.1), "spec.clauses[0].budget", "a value >= 0"),
    "too many slices": (
        lambda s: s["slices"].extend({"name": f"s{i}"} for i in range(12)),
        "spec.slices",
        "at most 16 entries",
    ),
}


@pytest.mark.parametrize("rule", CONTRACT_RULES)
def test_contract_rules(rule: str) -> None:
    """A valid contract with one rule broken is refused at that place for that reason."""
    assert problems(contract_document()) == []
    change, path, said = CONTRACT_RULES[rule]
    found = problems(contract_document(), change)
    assert any(place == path and said in message for place, message in found), found


def pool_document() -> Tree:
    """A valid pool."""
    return envelope("KernelPool", "pool", pool_spec())


POOL_RULES: dict[str, tuple[Change, str, str]] = {
    "name twice": (lambda s: s["kernels"][1].update(name="fp32"), "spec.kernels[1].name", "'fp32' again"),
    "zones": (
        lambda s: s["kernels"][0].update(zones=["a"]),
        "spec.kernels[0].zones",
        "one zone per replica (3)",
    ),
    "zone and zones": (lambda s: s["kernels"][0].update(zone="a"), "spec.kernels[0].zones", "zone or zones"),
    "no known good": (
        lambda s: s["kernels"][0].update(role="serving"),
        "spec.kernels",
        "known_good, got none",
    ),
    "unknown home": (lambda s: s["home"][0].update(kernel="fp8"), "spec.home[0].kernel", "got 'fp8'"),
    "home twice": (lambda s: s["home"][1].update(slice="code"), "spec.home[1].slice", "'code' again"),
    "home on the reference": (
        lambda s: s["kernels"][1].update(role="reference"),
        "spec.home[0].kernel",
        "serving kernels: fp32, int8",
    ),
}


@pytest.mark.parametrize("rule", POOL_RULES)
def test_pool_rules(rule: str) -> None:
    """A valid pool with one rule broken is refused at that place for that reason."""
    assert problems(pool_document()) == []
    change, path, said = POOL_RULES[rule]
    found = problems(pool_document(), change)
    assert any(place == path and said in message for place, message in found), found


PROFILE_RULES: dict[str, tuple[Change, str, str]] = {
    "no healthy condition": (lambda s: s["conditions"].pop(0), "spec.conditions", "without a fault as well"),
    "unverified": (
        lambda s: s["conditions"][1].update(verified=False),
        "spec.conditions[1].verified",
        "no canary",
    ),
    "condition twice": (
        lambda s: s["conditions"][1].update(name="healthy"),
        "spec.conditions[1].name",
        "again",
    ),
    "quantiles": (
        lambda s: s["conditions"][0]["measures"][0].update(p95=-1.0),
        "spec.conditions[0].measures[0].p95",
        ">= p50",
    ),
    "measured or not": (
        lambda s: s["not_measured"].append("kl_mean"),
        "spec.conditions[0].measures[0].metric",
        "not",
    ),
    "no samples": (
        lambda s: s["conditions"][0]["measures"][0].update(n=0),
        "spec.conditions[0].measures[0].n",
        ">= 1",
    ),
    "hash": (lambda s: s["samples"].update(sha256="ab"), "spec.samples.sha256", "text matching"),
}


@pytest.mark.parametrize("rule", PROFILE_RULES)
def test_profile_rules(rule: str, tmp_path: Path) -> None:
    """A valid profile with one rule broken is refused at that place for that reason."""
    samples = tmp_path / "bf16.npz"
    write_samples(samples, KERNELS[1])
    valid = profile_document(KERNELS[1], samples)
    assert problems(valid) == []
    change, path, said = PROFILE_RULES[rule]
    found = problems(valid, change)
    assert any(place == path and said in message for place, message in found), found
