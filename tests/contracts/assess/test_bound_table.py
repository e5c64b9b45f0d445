"""Bounds compared with measurements, and what clauses promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.assess.bound_table import clause_rows, distance_rows, sample_rows, tv_promise
from contracts.assess.observations import Observations, ObservedColumn
from contracts.documents.contract import RlAssumptions
from contracts.metrics import METRICS, prompt_columns
from tests.support.documents.contracts_made import contract, observed

DECLARED = RlAssumptions(advantage_max=2.0, score_norm_max=3.0, reward_min=0.0, reward_max=1.0)


@st.composite
def measured(draw: st.DrawFn) -> tuple[Observations, float]:
    """Columns of a few prompts of random kernels at a random temperature, on one slice."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    temperature = draw(st.floats(0.3, 3.0))
    noise = draw(st.floats(1e-3, 3.0))
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        first = rng.normal(scale=3.0, size=(6, 20))
        second = first + rng.normal(scale=noise, size=(6, 20)) * rng.random((6, 1))
        rows.append(prompt_columns(first / temperature, second / temperature, temperature=temperature))
    columns = tuple(
        ObservedColumn(slice="code", column=name, values=np.array([row[name] for row in rows]))
        for name in rows[0].names
        if name.endswith("@full_vocab")
    )
    return Observations(sha256="", condition="healthy", split="all", columns=columns), temperature


@given(measured())
def test_every_measured_quantity_stays_within_its_bound(case: tuple[Observations, float]) -> None:
    """In a table of real columns no measurement exceeds its sharp bound, and no sharp one the paper's."""
    rows = sample_rows(*case)
    assert len([row for row in rows if row.measured is not None]) == 6
    for row in rows:
        assert row.measured is None or row.measured <= row.sharp + 1e-8, row
        assert row.paper is None or row.sharp <= row.paper + 1e-12, row


PROMISING = [
    name
    for name, spec in METRICS.items()
    if "full_vocab" in spec.estimators and spec.family == "N" and "overlap" not in name and "flip" not in name
]


@given(measured(), st.sampled_from(PROMISING), st.one_of(st.none(), st.floats(1.01, 5.0)))
def test_clauses_keep_their_promise_on_tv(
    case: tuple[Observations, float], name: str, slack: float | None
) -> None:
    """If a clause just holds on the observations, mean TV is within what the clause promises."""
    observations, temperature = case
    values = observations.values(METRICS[name].column("full_vocab"), None)
    assert values is not None
    mean_like = METRICS[name].judgement == "mean"
    threshold = float(values.mean() if mean_like else values.max())
    fields: dict[str, object] = {"metric": name, "threshold": max(threshold, 1.0 if "prob" in name else 0.0)}
    if METRICS[name].unit == "probability":
        fields["threshold"] = min(threshold, 1.0)
    if METRICS[name].judgement == "per_observation":
        fields["extra"] = "      null_rate: 0\n"
    elif mean_like and slack is not None and threshold > 0.0:
        clip = slack * threshold
        fields["threshold"] = float(np.minimum(values, clip).mean())
        fields["extra"] = f"      clip: {clip}\n"
    promise = tv_promise(contract(fields).spec.clauses[0], temperature)
    tv = observations.values("tv_mean@full_vocab", None)
    assert tv is not None
    assert promise is None or float(tv.mean()) <= promise[1] + 1e-8


@pytest.mark.parametrize("clip", [0.05, 0.5])
@pytest.mark.parametrize("name", ["kl_mean", "tv_mean", "abs_log_w_mean"])
def test_clipped_means_promise_no_more_than_they_hold(name: str, clip: float) -> None:
    """Where a share of prompts has TV 1 and is clipped, the promise still covers mean TV."""
    for share in (0.1, 0.5, 0.9):
        clause = {"metric": name, "threshold": share * clip, "extra": f"      clip: {clip}\n"}
        promise = tv_promise(contract(clause).spec.clauses[0], 1.0)
        assert promise is not None
        assert promise[1] >= share


def test_the_promise_of_an_l2_clause_is_attained() -> None:
    """Two tokens with swapped probabilities attain what a clause on the L2 norm promises."""
    pair = np.array([[0.3, -0.3]])
    found = prompt_columns(pair, pair[:, ::-1])
    clause = {"metric": "logit_l2", "threshold": found["l2_mean@full_vocab"], "extra": "      null_rate: 0\n"}
    promise = tv_promise(contract(clause).spec.clauses[0], 1.0)
    assert promise is not None
    assert promise[1] == pytest.approx(found["tv_mean@full_vocab"])


def test_clause_rows_show_promise_and_worst_slice() -> None:
    """A clause on d promises tanh(tau / 2T) + rho of mean TV; one on top-k values promises nothing."""
    made = contract(
        {"metric": "logit_linf_p95", "threshold": 0.2},
        {"metric": "kl_mean", "threshold": 0.02},
        {"metric": "kl_mean", "threshold": 0.02, "estimator": "top_k"},
    )
    rows = clause_rows(made, observed(**{"tv_mean@full_vocab": [0.01, 0.03]}))
    assert [row.scope for row in rows] == ["c0", "c1"]
    assert rows[0].sharp == pytest.approx(np.tanh(0.1) + 0.05)
    assert rows[1].sharp == pytest.approx(0.1)
    assert rows[0].measured == pytest.approx(0.02)


def test_effects_are_bounded_not_measured() -> None:
    """Reward drift and gradient bias carry the assumptions they need and never a measured value."""
    rows = {row.quantity: row for row in distance_rows(0.2, 1.0, DECLARED)}
    tv = np.tanh(0.1)
    assert rows["TV of an answer of 64 tokens"].sharp == pytest.approx(1.0 - (1.0 - tv) ** 64)
    assert rows["reward drift of one step"].sharp == pytest.approx(tv)
    assert rows["policy-gradient bias"].sharp == pytest.approx(2 * 3 * 2 * tv)
    assert rows["policy-gradient bias"].needs == ("A1", "A2", "A3")
    assert all(row.measured is None for row in rows.values())
