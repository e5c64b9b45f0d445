"""Verdicts from samples: correct, from the named estimator, and reproducible to the byte."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.assess.evaluate import Convergence, Evaluation, evaluate
from contracts.assess.observation_log import load_log
from contracts.assess.observations import Observations, ObservedColumn, from_samples
from contracts.assess.verdicts import ContractVerdict
from contracts.errors import DocumentError
from contracts.metrics import METRICS
from contracts.rng import stream
from tests.support.documents.contracts_made import contract, kernel_samples, observed
from tests.support.paths import DOCS

MEAN = {"metric": "kl_mean", "threshold": 0.01}
P95 = {"metric": "logit_linf_p95", "threshold": 1.0}
KL = {"metric": "kl", "threshold": 0.01, "extra": "      null_rate: 0\n"}


def verdicts(result: Evaluation) -> set[str]:
    """Verdicts over slices."""
    return {str(clause.verdict) for clause in result.clauses}


def drifts(mean: float, n: int = 60) -> np.ndarray:
    """Values that spread 20 % around their mean."""
    wave = np.linspace(-0.2, 0.2, n)
    return mean * (1 + wave)


@pytest.mark.parametrize(
    ("mean", "expected"),
    [(0.005, ContractVerdict.PASS), (0.02, ContractVerdict.FAIL), (0.01, ContractVerdict.INCONCLUSIVE)],
)
def test_mean_clause(mean: float, expected: ContractVerdict) -> None:
    """A mean passes or fails when its limit is on that side of the threshold, else it is inconclusive."""
    result = evaluate(contract(MEAN), observed(kl=drifts(mean)))
    assert verdicts(result) == {str(expected)}
    assert result.verdict is expected


@pytest.mark.parametrize(
    ("n", "over", "expected"),
    [(59, 0, "pass"), (58, 0, "inconclusive"), (60, 5, "inconclusive"), (60, 9, "fail")],
)
def test_percentile_clause_uses_exact_limits(n: int, over: int, expected: str) -> None:
    """A p95 passes from 59 clean observations on, and fails when the exact lower limit exceeds 5 %."""
    values = np.where(np.arange(n) < over, 2.0, 0.5)
    result = evaluate(contract(P95), observed(**{"linf_max@full_vocab": values}))
    assert verdicts(result) == {expected}
    accounted = result.clauses[0].exceedance
    assert accounted is not None
    assert (accounted.count, accounted.observations, accounted.tolerated) == (over, n, 0.05)


def test_hard_clause_at_null_rate_zero_fails_on_one_unit() -> None:
    """A hard per-observation clause without a null rate fails on the first exceedance and passes on none."""
    once = np.where(np.arange(40) == 7, 0.5, 0.001)
    assert verdicts(evaluate(contract(KL), observed(kl=once))) == {"fail"}
    assert verdicts(evaluate(contract(KL), observed(kl=np.full(40, 0.001)))) == {"pass"}
    assert verdicts(evaluate(contract(KL), observed(kl=np.full(4, 0.001)))) == {"inconclusive"}


@pytest.mark.parametrize(
    ("n", "failed", "expected"),
    [
        (20, 0, "inconclusive"),
        (148, 0, "inconclusive"),
        (149, 0, "pass"),
        (5, 5, "fail"),
        (400, 8, "inconclusive"),
    ],
)
def test_shares_of_0_and_1_have_exact_limits(n: int, failed: int, expected: str) -> None:
    """A failure rate of 2 % needs 149 clean requests and no fewer; 20 leave up to 13.9 %."""
    clause = {"metric": "failure_rate", "threshold": 0.02, "estimator": "none", "family": "R"}
    result = evaluate(contract(clause), observed(failed=np.arange(n) < failed))
    assert verdicts(result) == {expected}
    judged = result.clauses[0].judged
    assert judged is not None
    assert judged.value == failed / n
    if (n, failed) == (20, 0):
        assert judged.high == pytest.approx(0.139, abs=5e-4)
        assert "at least 149" in result.clauses[0].reason


def test_a_failure_rate_of_zero_tolerates_no_failure() -> None:
    """With threshold 0 one failure fails, and none among enough requests passes."""
    clause = {"metric": "failure_rate", "threshold": 0, "estimator": "none", "family": "R"}
    assert verdicts(evaluate(contract(clause), observed(failed=np.arange(40) < 1))) == {"fail"}
    assert verdicts(evaluate(contract(clause), observed(failed=np.zeros(40)))) == {"pass"}


def test_soft_clause_spends_its_budget() -> None:
    """A soft per-observation clause tolerates its budget of exceedances, and no more."""
    clause = KL | {"budget": 0.2, "extra": ""}
    few, many = np.zeros(100), np.zeros(100)
    few[:5], many[:50] = 1.0, 1.0
    assert verdicts(evaluate(contract(clause), observed(kl=few))) == {"pass"}
    assert verdicts(evaluate(contract(clause), observed(kl=many))) == {"fail"}


def test_at_least_clauses_are_mirrored() -> None:
    """An overlap below its threshold fails, one above it passes."""
    clause = {"metric": "top5_overlap", "threshold": 0.9}
    assert verdicts(evaluate(contract(clause), observed(top5=drifts(0.5)))) == {"fail"}
    assert verdicts(evaluate(contract(clause), observed(top5=np.full(50, 0.99)))) == {"pass"}


def test_clipping_bounds_the_effect_of_one_observation() -> None:
    """A single huge observation breaks a plain mean and not a clipped one."""
    values = np.full(400, 0.001)
    values[0] = 1e6
    clipped = MEAN | {"extra": "      clip: 0.05\n"}
    assert verdicts(evaluate(contract(clipped), observed(kl=values))) == {"pass"}
    assert verdicts(evaluate(contract(MEAN), observed(kl=values))) != {"pass"}


def test_only_the_named_estimator_judges() -> None:
    """A threshold for top-k is not judged by full-vocabulary values, and the reason says so."""
    result = evaluate(contract(MEAN | {"estimator": "top_k"}), observed(kl=drifts(0.001)))
    assert verdicts(result) == {"not_measured"}
    assert "full_vocab was measured" in result.clauses[0].reason
    assert (result.verdict, result.convergence) == (ContractVerdict.INCONCLUSIVE, Convergence.UNDETERMINED)


def test_clauses_not_measured_leave_convergence_open() -> None:
    """The measured soft clauses decide the verdict; convergence needs every clause."""
    soft = {"estimator": "none", "family": "R", "budget": 0.05}
    latency = {"metric": "latency_ms_p95", "threshold": 100} | soft
    result = evaluate(contract(MEAN, latency), observed(kl=drifts(0.001)))
    assert (result.verdict, result.convergence) == (ContractVerdict.PASS, Convergence.UNDETERMINED)
    assert evaluate(contract(MEAN), observed(kl=drifts(0.001))).convergence is Convergence.HOLDS
    assert evaluate(contract(MEAN), observed(kl=drifts(1.0))).convergence is Convergence.BROKEN


def test_slices_are_judged_alone() -> None:
    """One bad slice fails although the mean over all slices keeps the threshold."""
    good = ObservedColumn(slice="code", column="kl_mean@full_vocab", values=np.full(400, 0.001))
    bad = ObservedColumn(slice="prose", column="kl_mean@full_vocab", values=drifts(0.02, 40))
    seen = Observations(sha256="", condition="healthy", split="all", columns=(good, bad))
    result = evaluate(contract(MEAN), seen)
    assert [str(clause.verdict) for clause in result.clauses] == ["pass", "fail"]


def test_default_slice_without_units_takes_all() -> None:
    """A default slice that was not sampled is judged on all slices together, and marked so."""
    made = contract(MEAN, slices=("code", "prose", "other"))
    result = evaluate(made, observed(kl=drifts(0.001)))
    assert [clause.pooled for clause in result.clauses] == [False, False, True]
    assert result.clauses[-1].exceedance is not None
    assert result.clauses[-1].exceedance.observations == 120


def test_pooling_fills_no_gap_in_a_measured_slice() -> None:
    """A default slice that was sampled, but not for this column, is not measured rather than pooled."""
    made = contract(MEAN)
    kl = ObservedColumn(slice="code", column="kl_mean@full_vocab", values=drifts(0.001))
    other = ObservedColumn(slice="prose", column="tv_mean@full_vocab", values=drifts(0.001))
    seen = Observations(sha256="", condition="healthy", split="all", columns=(kl, other))
    assert [str(clause.verdict) for clause in evaluate(made, seen).clauses] == ["pass", "not_measured"]


def test_a_value_at_the_threshold_keeps_it() -> None:
    """An observation at the threshold is not beyond it, for either sense."""
    assert verdicts(evaluate(contract(KL), observed(kl=np.full(40, 0.01)))) == {"pass"}
    exact = {"metric": "top5_overlap", "threshold": 0.5}
    result = evaluate(contract(exact), observed(top5=np.full(40, 0.5)))
    assert verdicts(result) == {"pass"}
    assert result.clauses[0].exceedance is not None
    assert result.clauses[0].exceedance.count == 0


def test_labelled_samples_are_judged(tmp_path: Path) -> None:
    """Refusals, parse failures and calibration are judged from labelled log lines alone."""
    lines: list[dict[str, Any]] = []
    for i in range(80):
        lines.append({"slice": "code", "judge": "refusal", "reference": "Sure.", "candidate": "I can't."})
        lines.append({"slice": "code", "judge": "json", "reference": "{}", "candidate": "{}"})
        right = int(i % 10 < 9)
        pair = {"reference": [0.9, right], "candidate": [0.9, right]}
        lines.append({"slice": "code", "judge": "calibration"} | pair)
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps(line) for line in lines))
    soft = {"estimator": "none", "family": "S", "threshold": 0.05}
    names = ("refusal_rate_gap", "parseability_gap", "ece_gap")
    made = contract(*({"metric": name} | soft for name in names), slices=("code",))
    result = evaluate(made, load_log(log))
    assert [str(clause.verdict) for clause in result.clauses] == ["fail", "pass", "pass"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "one observation as a JSON object"),
        ('{"slice": "a", "column": "kl", "value": NaN}', "finite number"),
        ('{"slice": "a", "column": "kl", "value": 1, "x": 1}', "unknown keys x"),
        ('{"column": "kl", "value": 1}', "'slice'"),
        ('{"slice": "a", "judge": "taste"}', "unknown judge"),
        ('{"slice": "a", "judge": "calibration", "reference": [2, 1], "candidate": [0, 0]}', "0..1"),
        ('{"slice": "a", "column": "kl", "value": 1' + "0" * 400 + "}", "too large"),
        ('{"slice": "a", "slice": "b", "column": "kl", "value": 1}', "twice"),
        ('{"slice": "\\ud800", "column": "kl", "value": 1}', "printable"),
        ("[1]", "not an object"),
        ("", "at least one observation"),
        ("[" * 100_000, "one observation"),
        ('{"slice": "a", "column": "failed", "value": 0.5}', "failed is 0 or 1"),
    ],
)
def test_bad_log_lines_are_named(tmp_path: Path, line: str, said: str) -> None:
    """A log line that is no observation is refused with the file, the line and the reason."""
    log = tmp_path / "log.jsonl"
    log.write_text(line)
    with pytest.raises(DocumentError, match=r"log\.jsonl") as caught:
        load_log(log)
    assert said in str(caught.value)


@pytest.mark.parametrize("seed", range(3))
def test_same_samples_same_verdicts(seed: int) -> None:
    """Two evaluations of equal samples are equal to the last bit, calibration bootstrap included."""
    rng = stream(seed, "units")
    rows = np.column_stack([rng.random(40), rng.random(40) < 0.5, rng.random(40), rng.random(40) < 0.5])
    made = contract(MEAN, {"metric": "ece_gap", "threshold": 0.1, "estimator": "none", "family": "S"})
    seen = observed(kl=rng.lognormal(size=40) * 0.01, ece_gap=rows.astype(np.float64))
    texts = {json.dumps(asdict(evaluate(made, seen)), sort_keys=True) for _ in range(2)}
    assert len(texts) == 1


def test_profile_samples_become_units() -> None:
    """Each prompt of the split is one observation, and bit-identical repeats have a window of 0."""
    samples = kernel_samples()
    seen = from_samples(samples, "00", "healthy", "certify")
    values = seen.values("kl_mean@full_vocab", "code")
    assert values is not None
    assert values.tolist() == samples.values[0, samples.rows("certify", "code"), 0, 0].tolist()
    window = seen.values("determinism_window", None)
    assert window is not None
    assert window.size == 128
    assert not window.any()
    everything = from_samples(samples, "00", "healthy", "all").values("kl_mean@full_vocab", None)
    assert everything is not None
    assert everything.size == 384
    with pytest.raises(ValueError, match="split must be"):
        from_samples(samples, "00", "healthy", "train")


def test_documented_log_lines_are_units(tmp_path: Path) -> None:
    """Every JSON line that the format's page shows is read as an observation."""
    page = (DOCS / "samples.md").read_text()
    block = page.split("```json\n")[1].split("```")[0]
    log = tmp_path / "log.jsonl"
    log.write_text(block)
    columns = load_log(log).column_names
    assert {"kl_mean@full_vocab", "latency_ms", "failed", "refusal_difference", "ece_gap"} <= set(columns)


def test_a_misspelt_column_is_refused(tmp_path: Path) -> None:
    """An unknown column is refused with the nearest known name; the columns for A1 to A3 are known."""
    log = tmp_path / "log.jsonl"
    log.write_text('{"slice": "code", "column": "latncy_ms", "value": 5}\n')
    with pytest.raises(DocumentError, match=r"log\.jsonl:1: .*'latncy_ms'; 'latency_ms' is meant"):
        load_log(log)
    log.write_text('{"slice": "code", "column": "advantage", "value": 5}\n')
    assert load_log(log).column_names == ("advantage",)


def test_documented_columns_are_the_columns() -> None:
    """The format's page names every per-prompt column and every column that a log may hold."""
    page = (DOCS / "samples.md").read_text()
    named = {column.partition("@")[0] for spec in METRICS.values() for column in spec.columns}
    assert [name for name in sorted(named) if f"`{name}`" not in page] == []
