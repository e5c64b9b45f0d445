"""The table's figures against llama.cpp's formulas, and what their limits mean."""

from __future__ import annotations

import math

import numpy as np
import pytest

from contracts.rng import stream
from live.kld.positions import POSITION_COLUMNS, PromptPositions
from live.kld.table import ALL, SliceTable, tables
from live.measure.prompts import Prompt


def positions(number: int, slice_: str, count: int, exact: bool = True) -> PromptPositions:
    """One prompt with random positions."""
    rng = stream(9, "kld-table", number)
    values = rng.gamma(0.5, 0.01, size=(count, len(POSITION_COLUMNS)))
    for name in ("reference_logp", "candidate_logp"):
        values[:, POSITION_COLUMNS.index(name)] = -rng.gamma(2.0, 1.0, size=count)
    values[:, POSITION_COLUMNS.index("same_top")] = rng.random(count) < 0.9
    prompt = Prompt(
        id=number, slice=slice_, split="probe", document="", token_ids=tuple(range(count + 1)), text=""
    )
    return PromptPositions(prompt=prompt, values=values, exact=exact)


def several(count: int = 30) -> list[PromptPositions]:
    """Prompts of two slices and different lengths."""
    return [positions(number, ("code", "json")[number % 2], 5 + number % 7) for number in range(count)]


def table(found: list[PromptPositions], name: str) -> SliceTable:
    """One column of the table."""
    return next(each for each in tables(found) if each.slice == name)


def percentile(values: list[float], fraction: float) -> float:
    """llama.cpp's, line by line."""
    ordered = sorted(values)
    place = fraction * (len(ordered) - 1)
    whole = int(place)
    place -= whole
    return (1 - place) * ordered[whole] + place * ordered[min(whole + 1, len(ordered) - 1)]


def test_figures_are_llama_cpp_s() -> None:
    """Means, quantiles, perplexities, probability changes and the share of same top tokens."""
    found = several()
    every = table(found, ALL)
    kl = [float(v) for each in found for v in each.column("kl")]
    mine = np.concatenate([each.column("candidate_logp") for each in found])
    base = np.concatenate([each.column("reference_logp") for each in found])
    delta = np.exp(mine) - np.exp(base)
    expected = {
        "ppl": math.exp(-mine.mean()),
        "ppl_base": math.exp(-base.mean()),
        "ppl_ratio": math.exp((base - mine).mean()),
        "kld_mean": sum(kl) / len(kl),
        "kld_median": percentile(kl, 0.5),
        "kld_p90": percentile(kl, 0.9),
        "kld_p99": percentile(kl, 0.99),
        "kld_p999": percentile(kl, 0.999),
        "kld_max": max(kl),
        "delta_p_mean": delta.mean(),
        "delta_p_rms": math.sqrt((delta**2).mean()),
        "same_top": np.concatenate([each.column("same_top") for each in found]).mean(),
    }
    assert {name: every[name].value for name in expected} == pytest.approx(expected, rel=1e-9)
    assert every.positions == len(kl)


def test_slices_are_judged_apart_and_together() -> None:
    """Every slice has its own column; the last one is all of them, and one slice needs no such column."""
    found = several()
    assert [each.slice for each in tables(found)] == ["code", "json", ALL]
    assert [each.slice for each in tables([each for each in found if each.prompt.slice == "code"])] == [
        "code"
    ]
    assert sum(each.positions for each in tables(found)[:2]) == table(found, ALL).positions


def test_limits_enclose_the_figure_and_shrink_with_prompts() -> None:
    """More prompts give narrower limits around the mean; equal inputs give equal ones."""
    few, many = table(several(20), ALL), table(several(400), ALL)
    for name in ("kld_mean", "ppl_ratio", "same_top", "delta_p_rms"):
        assert few[name].low <= few[name].value <= few[name].high
        assert many[name].high - many[name].low < few[name].high - few[name].low, name
    assert many["kld_p90"].low <= many["kld_p90"].value <= many["kld_p90"].high
    assert tables(several(20)) == tables(several(20))


def test_limits_of_a_mean_cover_the_truth_as_often_as_they_say() -> None:
    """Of 200 samples of 40 prompts, the 95 % limits of mean KL hold the true mean in about that many."""
    held = 0
    for trial in range(200):
        found = [positions(1000 * (trial + 1) + number, "code", 8) for number in range(40)]
        figure = table(found, "code")["kld_mean"]
        held += figure.low <= 0.5 * 0.01 <= figure.high
    assert 176 <= held <= 199


def test_one_prompt_has_no_limits() -> None:
    """Nothing is known of the spread between prompts."""
    figure = table([positions(1, "code", 50)], "code")["kld_mean"]
    assert math.isnan(figure.low)
    assert figure.value > 0.0


def test_the_upper_side_of_total_variation_is_told_for_short_lists_alone() -> None:
    """Over the whole vocabulary there is nothing between both sides."""
    assert "tv_most" not in {each.name for each in table(several(), ALL).figures}
    short = [positions(number, "code", 9, exact=False) for number in range(5)]
    assert "tv_most" in {each.name for each in table(short, "code").figures}
    assert not table(short, "code").exact
