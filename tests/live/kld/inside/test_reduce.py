"""The reduction inside the server against the plain numpy one, row by row."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.metrics.numeric import log_normalise
from contracts.rng import stream
from live.kld.inside.orders import COLUMNS
from live.kld.positions import from_rows
from live.measure.prompts import Prompt

pytestmark = pytest.mark.needs("torch")


def reduced(base: np.ndarray, mine: np.ndarray, tokens: list[int]) -> np.ndarray:
    """float64 [positions, columns] from the server's reduction."""
    import torch

    from live.kld.inside.reduce import reduced as inside

    return np.asarray(inside(torch.tensor(base), torch.tensor(mine), torch.tensor(tokens)))


def plain(base: np.ndarray, mine: np.ndarray, tokens: list[int]) -> np.ndarray:
    """The same by numpy."""
    prompt = Prompt(id=0, slice="toy", split="probe", document="", token_ids=(0, *tokens), text="")
    return from_rows(prompt, base, mine).values[:, : len(COLUMNS)]


@pytest.mark.parametrize("drift", [0.0, 1e-3, 0.1, 3.0])
def test_both_reductions_agree(drift: float) -> None:
    """Every column, whether the kernels are the same, close or far apart; logits serve as well."""
    rng = stream(7, "reduce")
    base = log_normalise(rng.normal(size=(9, 200)) * 4).astype(np.float32)
    mine = (base + drift * rng.normal(size=base.shape)).astype(np.float32)
    tokens = [int(t) for t in rng.integers(200, size=9)]
    expected = plain(base, mine, tokens)
    assert reduced(base, mine, tokens) == pytest.approx(expected, rel=1e-7, abs=1e-9)


def test_forbidden_tokens_count_as_the_definitions_say() -> None:
    """By both: left out. By the server alone: infinite KL. By the reference alone: infinite reverse KL."""
    base = log_normalise(np.array([[1.0, 2.0, -np.inf, 0.5], [1.0, 2.0, 0.1, 0.5], [1.0, 2.0, -np.inf, 0.5]]))
    mine = log_normalise(np.array([[1.5, 2.0, -np.inf, 0.5], [1.0, 2.0, -np.inf, 0.5], [1.0, 2.0, 0.2, 0.5]]))
    found, expected = reduced(base, mine, [0, 1, 3]), plain(base, mine, [0, 1, 3])
    assert np.array_equal(np.isinf(found), np.isinf(expected))
    finite = np.isfinite(expected)
    assert found[finite] == pytest.approx(expected[finite], rel=1e-9, abs=1e-12)
    assert np.isinf(found[1, COLUMNS.index("kl")])
    assert np.isfinite(found[0]).all()


def test_equal_largest_tokens_go_to_the_lower_one() -> None:
    """As in llama.cpp: a server with two equally likely tokens agrees with the reference on the first."""
    base = np.log(np.array([[0.2, 0.4, 0.3, 0.1]]))
    tied = np.log(np.array([[0.2, 0.35, 0.35, 0.1]]))
    assert reduced(base, tied, [0])[0, COLUMNS.index("same_top")] == 1.0
    assert reduced(base[:, [0, 2, 1, 3]], tied, [0])[0, COLUMNS.index("same_top")] == 0.0


def test_a_row_that_is_no_distribution_is_told_as_such() -> None:
    """NaN in one row of the server makes that row NaN, and no other."""
    base = log_normalise(stream(8, "nan").normal(size=(3, 10)))
    mine = base.copy()
    mine[1, 4] = np.nan
    found = reduced(base, mine, [1, 2, 3])
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[[0, 2]]).all()
