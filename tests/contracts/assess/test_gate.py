"""Missing evidence makes an evaluation inconclusive, and does not hide a proven violation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.assess.evaluate import Evaluation, evaluate
from contracts.assess.gate import GateOutcome, Waiver, parse_waiver
from contracts.assess.observations import LOGGED, Observations, ObservedColumn
from contracts.assess.several import join_observations
from contracts.assess.verdicts import ContractVerdict
from contracts.documents import KernelContract
from contracts.errors import DocumentError
from contracts.rng import stream
from tests.support.documents.contracts_made import contract

SLICES = ("sql", "support")
#: A slice that no contract here names, so that it is traffic of the default slice.
STRANGER = "chat"
OF_REQUESTS = {"estimator": "none", "family": "R"}
CLAUSES = (
    {"id": "N-kl", "metric": "kl_mean", "threshold": 0.01, "level": "L3"},
    {"id": "N-flip", "metric": "top1_flip", "threshold": 0.05, "level": "L3", "budget": 0.05},
    {"id": "R-failed", "metric": "failure_rate", "threshold": 0.02, "level": "L1"} | OF_REQUESTS,
    {"id": "R-ttft", "metric": "ttft_ms_p95", "threshold": 2000, "level": "L3", "budget": 0.05} | OF_REQUESTS,
    {
        "id": "O-print",
        "metric": "fingerprint_match",
        "threshold": 0,
        "estimator": "none",
        "family": "O",
        "level": "L3",
        "extra": "      null_rate: 0\n",
    },
)
#: Column of each clause, and a value that breaks the clause if all observations have it.
BREAKING = {
    "kl_mean@full_vocab": 0.02,
    "top1_flip@full_vocab": 0.2,
    "failed": 1.0,
    "ttft_ms": 5000.0,
    "fingerprint_mismatch": 1.0,
}
HEALTHY = {
    "kl_mean@full_vocab": 0.004,
    "top1_flip@full_vocab": 0.01,
    "failed": 0.0,
    "ttft_ms": 300.0,
    "fingerprint_mismatch": 0.0,
}
INDICATORS = ("failed", "fingerprint_mismatch")


def terms() -> KernelContract:
    """Hard clauses and clauses of level L3 on two slices and a default one."""
    return contract(*CLAUSES, slices=(*SLICES, "rest"))


def spread(value: float, column: str, seed: int) -> np.ndarray:
    """200 observations around ``value``; indicators are constant."""
    wave = stream(seed, column).uniform(0.8, 1.2, size=200)
    return np.full(200, value) if column in INDICATORS else value * wave


def columns_of(seed: int, broken: tuple[str, str] | None) -> tuple[ObservedColumn, ...]:
    """Every column that the contract needs; ``broken`` (slice, column) violates its clause.

    The default slice has the name that an unknown header might have.
    """
    return tuple(
        ObservedColumn(
            slice=place,
            column=name,
            values=spread(BREAKING[name] if (place, name) == broken else HEALTHY[name], name, seed),
        )
        for place in (*SLICES, STRANGER)
        for name in HEALTHY
    )


def judged(columns: tuple[ObservedColumn, ...], *waivers: Waiver) -> Evaluation:
    """The evaluation of ``columns``."""
    seen = Observations(sha256="00", condition="healthy", split="all", columns=columns)
    return evaluate(terms(), seen, waivers=waivers)


def missing(one: ObservedColumn) -> ObservedColumn | None:
    """The column is missing."""
    return None


def too_few(one: ObservedColumn) -> ObservedColumn:
    """Only the first three observations are there, and none is bad, as one would break a hard clause."""
    return replace(one, values=np.full(3, HEALTHY[one.column]))


def other_estimator(one: ObservedColumn) -> ObservedColumn | None:
    """Measured by another estimator than the threshold's; a column without estimator is missing."""
    name, at, _ = one.column.partition("@")
    return replace(one, column=f"{name}@top_k") if at else None


HOLES: tuple[Callable[[ObservedColumn], ObservedColumn | None], ...] = (missing, too_few, other_estimator)


@dataclass(frozen=True, kw_only=True)
class Twin:
    """A complete set, and the same set with a hole where the violation is, or would be."""

    complete: tuple[ObservedColumn, ...]
    holed: tuple[ObservedColumn, ...]
    violates: bool
    place: tuple[str, str]


def twin(seed: int) -> Twin:
    """Every second set violates; slice, column and kind of hole alternate."""
    place = (SLICES[seed // 2 % 2], tuple(HEALTHY)[seed // 2 % len(HEALTHY)])
    violates = seed % 2 == 0
    complete = columns_of(seed, place if violates else None)
    hole = HOLES[seed % 3]
    parts = [hole(one) if (one.slice, one.column) == place else one for one in complete]
    holed = tuple(one for one in parts if one is not None)
    return Twin(complete=complete, holed=holed, violates=violates, place=place)


@pytest.mark.parametrize("seed", range(30))
def test_holes_are_inconclusive_and_complete_twins_are_judged(seed: int) -> None:
    """A set with a hole is inconclusive, whatever it hides; its complete twin is judged correctly."""
    case = twin(seed)
    expected = GateOutcome.FAILED if case.violates else GateOutcome.SUCCESSFUL
    assert judged(case.complete).outcome is expected
    assert judged(case.holed).outcome is GateOutcome.INCONCLUSIVE


@pytest.mark.parametrize("seed", range(30))
def test_a_proven_hard_violation_fails_despite_holes_elsewhere(seed: int) -> None:
    """Mismatching fingerprints fail although another column is missing."""
    case = twin(seed)
    broken = ("sql" if case.place[0] == "support" else "support", "fingerprint_mismatch")
    parts = [
        replace(one, values=np.ones(200)) if (one.slice, one.column) == broken else one for one in case.holed
    ]
    assert judged(tuple(parts)).outcome is GateOutcome.FAILED


@given(st.sets(st.tuples(st.sampled_from((*SLICES, STRANGER)), st.sampled_from(tuple(HEALTHY)))))
def test_taking_evidence_away_never_makes_a_pass(gone: set[tuple[str, str]]) -> None:
    """An evaluation with missing columns never passes; with all of them it does."""
    kept = tuple(one for one in columns_of(1, None) if (one.slice, one.column) not in gone)
    assert (judged(kept).outcome is GateOutcome.SUCCESSFUL) == (not gone)


def test_a_slice_without_samples_is_inconclusive_even_with_soft_clauses() -> None:
    """A named slice without observations leaves the verdict open."""
    soft = {"metric": "kl_mean", "threshold": 0.01, "budget": 0.05, "level": "L1"}
    seen = tuple(one for one in columns_of(1, None) if one.slice == "support")
    observations = Observations(sha256="00", condition="healthy", split="all", columns=seen)
    result = evaluate(contract(soft, slices=SLICES), observations)
    assert result.verdict is ContractVerdict.INCONCLUSIVE
    waiver = Waiver(clause_id="*", slice="sql", reason="not served yet")
    assert (
        evaluate(contract(soft, slices=SLICES), observations, waivers=[waiver]).verdict
        is ContractVerdict.PASS
    )


def test_a_default_slice_without_samples_does_not_pass_on_other_slices() -> None:
    """Traffic of recognised slices shows nothing of the default slice; traffic of unknown names does."""
    promised = contract(CLAUSES[0] | {"budget": 0.05, "level": "L1"}, slices=("support", "sql"))
    kept = {place: tuple(o for o in columns_of(1, None) if o.slice == place) for place in (*SLICES, STRANGER)}

    def found(*columns: ObservedColumn, waivers: tuple[Waiver, ...] = ()) -> Evaluation:
        seen = Observations(sha256="00", condition="healthy", split="all", columns=columns)
        return evaluate(promised, seen, waivers=waivers)

    hole = found(*kept["support"])
    assert hole.outcome is GateOutcome.INCONCLUSIVE
    assert hole.clauses[-1].pooled
    assert "no observations of sql itself" in hole.clauses[-1].reason
    assert found(*kept["support"], *kept["sql"]).outcome is GateOutcome.SUCCESSFUL
    assert found(*kept["support"], *kept[STRANGER]).outcome is GateOutcome.SUCCESSFUL
    waiver = Waiver(clause_id="*", slice="sql", reason="not served yet")
    assert found(*kept["support"], waivers=(waiver,)).outcome is GateOutcome.SUCCESSFUL


def test_an_unknown_slice_is_judged_by_itself() -> None:
    """A violation on the default slice's own traffic is not averaged away over named slices."""
    broken = columns_of(1, (STRANGER, "kl_mean@full_vocab"))
    assert judged(broken).outcome is GateOutcome.FAILED
    default = next(one for one in judged(broken).clauses if (one.clause_id, one.slice) == ("N-kl", "rest"))
    assert (default.verdict, default.pooled) == (ContractVerdict.FAIL, True)


def test_a_waiver_covers_what_it_names_and_is_recorded() -> None:
    """The named clause and slice may stay undecided; another slice, or a violation, may not."""
    gone = {(place, "ttft_ms") for place in (*SLICES, STRANGER)}
    kept = tuple(one for one in columns_of(1, None) if (one.slice, one.column) not in gone)
    part, whole = parse_waiver("R-ttft/sql=no traffic yet"), parse_waiver("R-ttft = measured in staging")
    assert judged(kept, part).outcome is GateOutcome.INCONCLUSIVE
    result = judged(kept, whole)
    assert result.outcome is GateOutcome.SUCCESSFUL
    assert {each.waived for each in result.clauses if each.clause_id == "R-ttft"} == {"measured in staging"}
    assert result.waivers == (whole,)
    broken = columns_of(1, ("sql", "ttft_ms"))
    assert judged(broken, whole).outcome is GateOutcome.FAILED


@pytest.mark.parametrize(
    "text", ["R-ttft", "R-ttft=", "=reason", "*=reason", "*/*=reason", "R-ttft/=reason", "nope=r", "*/nope=r"]
)
def test_waivers_without_a_name_or_a_reason_are_refused(text: str) -> None:
    """A waiver of nothing, of everything, or without a reason is refused."""
    with pytest.raises(DocumentError, match="--waive"):
        judged(columns_of(1, None), parse_waiver(text))


def test_samples_and_logs_are_evaluated_together() -> None:
    """Numerics from a profile and requests from logs together decide what neither decides alone."""
    every = columns_of(1, None)
    numeric = Observations(
        sha256="aa", condition="healthy", split="all", columns=tuple(o for o in every if "@" in o.column)
    )
    logs = [
        Observations(sha256=name, condition=LOGGED, split="all", columns=(one,))
        for name, one in ((str(i), o) for i, o in enumerate(every) if "@" not in o.column)
    ]
    assert evaluate(terms(), numeric).outcome is GateOutcome.INCONCLUSIVE
    assert evaluate(terms(), join_observations(logs)).outcome is GateOutcome.INCONCLUSIVE
    together = evaluate(terms(), join_observations([*logs, numeric]))
    assert together.outcome is GateOutcome.SUCCESSFUL
    assert (together.samples_sha256, together.condition, len(together.inputs)) == (
        "aa",
        "healthy",
        1 + len(logs),
    )


def test_inputs_of_different_kernels_are_refused() -> None:
    """Neither the same file twice nor two sample files of the same columns give one verdict."""
    one = Observations(sha256="aa", condition="healthy", split="all", columns=columns_of(1, None))
    with pytest.raises(ValueError, match="twice"):
        join_observations([one, one])
    with pytest.raises(ValueError, match="two files"):
        join_observations([one, replace(one, sha256="bb")])
