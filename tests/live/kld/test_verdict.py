"""A comparison against a contract's numeric clauses: the columns, the verdict, and what is left out."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.assess.gate import GateOutcome
from contracts.documents import KernelContract
from contracts.errors import DocumentError
from contracts.loading.loader import load_as
from contracts.metrics import prompt_columns
from contracts.metrics.numeric import log_normalise
from contracts.rng import stream
from live.kld.positions import PromptPositions, from_rows, from_top
from live.kld.verdict import judge, observations
from live.measure.backend import TopScores
from live.measure.prompts import Prompt
from tests.support.paths import ROOT

MINIMAL = load_as(KernelContract, ROOT / "contracts" / "library" / "minimal-train-infer.yaml")


def rows(number: int, drift: float) -> tuple[np.ndarray, np.ndarray]:
    """Reference and candidate float64 [positions, vocabulary] of one prompt."""
    rng = stream(21, "judged", number)
    base = log_normalise(rng.normal(size=(7, 40)))
    return base, log_normalise(base + drift * rng.normal(size=base.shape))


def prompt(number: int) -> Prompt:
    """A prompt of seven positions."""
    return Prompt(id=number, slice="toy", split="probe", document="", token_ids=tuple(range(8)), text="")


def found(drift: float, count: int = 60) -> list[PromptPositions]:
    """Prompts over the whole vocabulary."""
    return [from_rows(prompt(number), *rows(number, drift)) for number in range(count)]


def test_columns_are_those_of_a_profile() -> None:
    """What a profile measures of the same rows, prompt by prompt and column by column."""
    seen = observations(found(0.2, 5))
    for entry in seen.columns:
        for number, value in enumerate(entry.values):
            base, mine = rows(number, 0.2)
            assert value == pytest.approx(prompt_columns(base, mine)[entry.column], rel=1e-9, abs=1e-12)
    assert "linf_max@full_vocab" in seen.column_names


@pytest.mark.parametrize(("drift", "outcome"), [(1e-3, GateOutcome.SUCCESSFUL), (1.0, GateOutcome.FAILED)])
def test_the_numeric_clauses_decide(drift: float, outcome: GateOutcome) -> None:
    """A kernel close to its reference keeps the minimal contract, one far from it fails."""
    result = judge(MINIMAL, found(drift))
    assert result.outcome is outcome
    assert {each.family for each in result.clauses} == {"N"}


def test_too_few_prompts_are_inconclusive() -> None:
    """However close they are."""
    assert judge(MINIMAL, found(1e-3, 4)).outcome is GateOutcome.INCONCLUSIVE


def test_lower_bounds_are_not_taken_for_the_whole_vocabulary() -> None:
    """A clause over the full vocabulary is not measured by a short list, and hard ones stay open."""
    short = []
    for number in range(60):
        base, mine = rows(number, 1e-3)
        ids = np.argsort(-mine, axis=1)[:, :20]
        scores = TopScores(
            token_ids=ids, log_probs=np.take_along_axis(mine, ids, axis=1), golden=mine[:, 0].copy()
        )
        short.append(from_top(prompt(number), base.astype(np.float32), scores))
    assert set(observations(short).column_names) == {"kl_mean@top_k", "tv_mean@top_k", "top1_flip@top_k"}
    assert judge(MINIMAL, short).outcome is GateOutcome.INCONCLUSIVE


def test_a_contract_without_numeric_clauses_is_refused() -> None:
    """There is nothing that this evidence could decide."""
    others = tuple(clause for clause in MINIMAL.spec.clauses if clause.family != "N")
    bare = MINIMAL.model_copy(update={"spec": MINIMAL.spec.model_copy(update={"clauses": others})})
    with pytest.raises(DocumentError, match="a clause of family N"):
        judge(bare, found(0.1, 3))
