"""Unreadable values are counted, and no verdict depends on what they might be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from contracts.assess.evaluate import evaluate
from contracts.assess.observations import Observations, UnreadableValues, from_samples
from tests.support.documents.contracts_made import contract, kernel_samples, observed

MEAN = {"metric": "kl_mean", "threshold": 0.01}
CLIPPED = MEAN | {"extra": "      clip: 0.05\n"}
P95 = {"metric": "logit_linf_p95", "threshold": 1.0}
KL = {"metric": "kl", "threshold": 0.01, "extra": "      null_rate: 0\n"}


def drifts(mean: float, n: int = 60) -> np.ndarray:
    """Values that spread 20 % around their mean."""
    return mean * (1 + np.linspace(-0.2, 0.2, n))


def test_unreadable_values_are_counted_by_slice_and_column() -> None:
    """NaN and values outside a column's range are unreadable; a column with NaN only is not measured."""
    samples = kernel_samples()
    values = samples.values.copy()
    code, prose = (samples.rows("certify", name) for name in samples.slices[:2])
    values[0, code[:3], :, 0] = np.nan
    values[0, code[3], :, 0] = -0.5
    values[0, prose, :, 0] = np.nan
    seen = from_samples(replace(samples, values=values), "00", "healthy", "certify")
    kl = [each for each in seen.unreadable if each.column == "kl_mean@full_vocab"]
    assert kl == [
        UnreadableValues(slice=samples.slices[0], column="kl_mean@full_vocab", count=4, prompts=code.size)
    ]
    left = seen.values("kl_mean@full_vocab", samples.slices[0])
    assert left is not None
    assert left.size == code.size - 4
    assert seen.values("kl_mean@full_vocab", samples.slices[1]) is None


def unreadable(column: str, count: int, **columns: np.ndarray) -> Observations:
    """Observations of the slice ``code``, with ``count`` more that could not be read."""
    seen = observed(**columns)
    lost = UnreadableValues(slice="code", column=column, count=count, prompts=60 + count)
    return replace(seen, unreadable=(lost,))


@pytest.mark.parametrize(
    ("rule", "column", "values", "lost", "expected"),
    [
        (MEAN, "kl_mean@full_vocab", drifts(0.005), 1, "inconclusive"),  # one may be as large as it likes
        (CLIPPED, "kl_mean@full_vocab", drifts(0.005, 400), 1, "pass"),
        (
            CLIPPED,
            "kl_mean@full_vocab",
            drifts(0.005, 400),
            60,
            "inconclusive",
        ),
        (MEAN, "kl_mean@full_vocab", drifts(0.03), 3, "fail"),
        (MEAN, "kl_mean@full_vocab", drifts(0.012), 30, "inconclusive"),
        (P95, "linf_max@full_vocab", np.full(100, 0.5), 1, "pass"),
        (P95, "linf_max@full_vocab", np.full(100, 0.5), 5, "inconclusive"),
        (KL, "kl_mean@full_vocab", drifts(0.005), 1, "inconclusive"),
        (KL, "kl_mean@full_vocab", drifts(0.02), 50, "fail"),
        (MEAN, "kl_mean@full_vocab", np.array([]), 4, "inconclusive"),
    ],
)
def test_unreadable_values_neither_pass_nor_fail(
    rule: dict[str, Any], column: str, values: np.ndarray, lost: int, expected: str
) -> None:
    """A verdict stands only if no unreadable value could change it; the reason gives their number."""
    result = evaluate(contract(rule), unreadable(column, lost, **({column: values} if values.size else {})))
    assert str(result.clauses[0].verdict) == expected
    assert f"{lost} of {values.size + lost} values" in result.clauses[0].reason or not values.size
    assert [each.count for each in result.unreadable] == [lost]
