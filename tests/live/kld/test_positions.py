"""Numbers of a position, against llama.cpp's definitions written out, and what a short list still tells."""

from __future__ import annotations

import math

import numpy as np
import pytest

from contracts.errors import MeasurementError
from contracts.metrics.numeric import log_normalise
from contracts.rng import stream
from live.kld.positions import PromptPositions, from_reduced, from_rows, from_top
from live.measure.backend import TopScores
from live.measure.prompts import Prompt

POSITIONS, VOCABULARY = 12, 50


def prompt() -> Prompt:
    """A prompt of known tokens."""
    ids = tuple(int(t) for t in stream(1, "kld-prompt").integers(VOCABULARY, size=POSITIONS + 1))
    return Prompt(id=3, slice="toy", split="probe", document="", token_ids=ids, text="")


def rows(name: str, drift: float) -> np.ndarray:
    """Log-probabilities float64 [positions, vocabulary], ``drift`` away from the common ones."""
    common = stream(2, "kld-rows").normal(size=(POSITIONS, VOCABULARY)) * 3
    return log_normalise(common + drift * stream(2, "kld-drift", name).normal(size=common.shape))


def top(log_probs: np.ndarray, count: int) -> TopScores:
    """What a server would return of these rows."""
    ids = np.argsort(-log_probs, axis=1, kind="stable")[:, :count]
    own = np.array(prompt().token_ids[1:])
    return TopScores(
        token_ids=ids,
        log_probs=np.take_along_axis(log_probs, ids, axis=1),
        golden=log_probs[np.arange(POSITIONS), own],
    )


def test_whole_rows_give_the_numbers_of_llama_cpp() -> None:
    """KL, same top and both log-probabilities of the next token, summed token by token as llama.cpp does."""
    base, mine = rows("base", 0.0), rows("mine", 0.3)
    found = from_rows(prompt(), base.astype(np.float32), mine)
    for at, token in enumerate(prompt().token_ids[1:]):
        kld = sum(math.exp(p) * (p - q) for p, q in zip(base[at], mine[at], strict=True))
        assert found.column("kl")[at] == pytest.approx(kld, rel=1e-5)
        assert found.column("same_top")[at] == float(np.argmax(base[at]) == np.argmax(mine[at]))
        assert found.column("reference_logp")[at] == pytest.approx(base[at][token], rel=1e-6)
        assert found.column("candidate_logp")[at] == pytest.approx(mine[at][token], rel=1e-9)
        reverse = sum(math.exp(q) * (q - p) for p, q in zip(base[at], mine[at], strict=True))
        assert found.column("reverse_kl")[at] == pytest.approx(reverse, rel=1e-5)
    assert found.exact
    assert np.array_equal(found.column("tv"), found.column("tv_most"))


@pytest.mark.parametrize("count", [5, 20, VOCABULARY])
def test_a_short_list_bounds_what_whole_rows_tell(count: int) -> None:
    """KL and reverse KL from below, total variation from both sides, the rest exactly."""
    base, mine = rows("base", 0.0), rows("mine", 0.3)
    whole = from_rows(prompt(), base, mine)
    short = from_top(prompt(), base.astype(np.float32), top(mine, count))
    slack = 1e-5
    for name in ("kl", "reverse_kl", "tv"):
        assert (short.column(name) <= whole.column(name) + slack).all(), name
    assert (short.column("tv_most") >= whole.column("tv") - slack).all()
    for name in ("same_top", "reference_logp", "candidate_logp"):
        assert short.column(name) == pytest.approx(whole.column(name), abs=1e-6), name
    assert np.isnan(short.column("linf")).all()
    assert not short.exact


def test_two_short_lists_bound_as_well() -> None:
    """Where the reference too knows its most probable tokens alone, KL is still a lower bound."""
    base, mine = rows("base", 0.0), rows("mine", 0.3)
    short = from_top(prompt(), top(base, 20), top(mine, 20))
    whole = from_rows(prompt(), base, mine)
    assert (short.column("kl") <= whole.column("kl") + 1e-9).all()
    assert (short.column("tv") <= whole.column("tv") + 1e-9).all()
    assert short.column("reference_logp") == pytest.approx(whole.column("reference_logp"), abs=1e-9)


def test_a_server_without_numbers_is_refused_not_measured() -> None:
    """A NaN among the rows is no distance."""
    base, mine = rows("base", 0.0), rows("mine", 0.1)
    mine[4, 7] = np.nan
    with pytest.raises(MeasurementError, match="prompt 3"):
        from_rows(prompt(), base, mine)
    found: PromptPositions = from_rows(prompt(), base, rows("mine", 0.1))
    values = found.values[:, :-1].copy()
    values[2:4] = np.nan
    with pytest.raises(MeasurementError, match="at 2 of 12 positions"):
        from_reduced(prompt(), values)
