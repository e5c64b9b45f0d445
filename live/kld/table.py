"""The table of a comparison: the figures of llama.cpp's ``--kl-divergence``, per slice, with their limits.

Means are over positions; quantiles are interpolated as in llama.cpp. Positions of one prompt are correlated,
so confidence limits are percentile bootstrap limits over whole prompts, two-sided at ``CONFIDENCE``. Too few
prompts show as wide limits; a single prompt and extremes have no limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.rng import stream
from contracts.units import CONFIDENCE
from live.kld.positions import PromptPositions

Floats = NDArray[np.float64]

RESAMPLES = 500
#: Name of the column with all slices together.
ALL = "all"
_QUANTILES = {"kld_median": 0.5, "kld_p90": 0.9, "kld_p99": 0.99, "kld_p999": 0.999}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of the table with its confidence limits; NaN if it has none."""

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceTable:
    """One column of the table. exact: False if divergences are lower bounds."""

    slice: str
    prompts: int
    positions: int
    exact: bool
    figures: tuple[Figure, ...]

    def __getitem__(self, name: str) -> Figure:
        """The figure called ``name``; the KeyError lists the available ones."""
        for figure in self.figures:
            if figure.name == name:
                return figure
        raise KeyError(f"no figure {name!r}; there are: {', '.join(each.name for each in self.figures)}")


def tables(found: Sequence[PromptPositions]) -> tuple[SliceTable, ...]:
    """One table per slice in order of appearance; with several slices, also one of all together."""
    names = list(dict.fromkeys(each.prompt.slice for each in found))
    parts = [(name, [each for each in found if each.prompt.slice == name]) for name in names]
    parts += [(ALL, list(found))] if len(names) > 1 else []
    return tuple(_table(name, members) for name, members in parts)


def _table(name: str, members: Sequence[PromptPositions]) -> SliceTable:
    counts = np.array([len(each.values) for each in members])
    picks = stream(0, "bootstrap", "kld", name).integers(0, len(members), size=(RESAMPLES, len(members)))
    weights = np.stack([np.bincount(pick, minlength=len(members)) for pick in picks]).astype(np.float64)
    if len(members) < 2:
        weights = weights[:0]
    figures = [*_means(members, counts, weights), *_quantiles(members, counts, weights)]
    return SliceTable(
        slice=name,
        prompts=len(members),
        positions=int(counts.sum()),
        exact=all(each.exact for each in members),
        figures=tuple(figures),
    )


def _means(members: Sequence[PromptPositions], counts: NDArray[np.int64], weights: Floats) -> list[Figure]:
    """Figures that are functions of means over positions."""
    sums = {name: np.array([of(each).sum() for each in members]) for name, of in _TERMS.items()}
    ones = np.ones((1, len(members)))

    def mean(rows: Floats) -> dict[str, Floats]:
        return {name: (rows @ column) / (rows @ counts) for name, column in sums.items()}

    values, drawn = mean(ones), mean(weights)
    return [
        _figure(name, float(made(values)[0]), made(drawn))
        for name, made in _MADE.items()
        if name != "tv_most" or not all(each.exact for each in members)
    ]


def _quantiles(
    members: Sequence[PromptPositions], counts: NDArray[np.int64], weights: Floats
) -> list[Figure]:
    """Quantiles and maximum of KL; in bootstrap samples a quantile is the next observed value below."""
    kl = np.concatenate([each.column("kl") for each in members])
    owner = np.repeat(np.arange(len(members)), counts)
    order = np.argsort(kl, kind="stable")
    kl, owner = kl[order], owner[order]
    shares = np.array(list(_QUANTILES.values()))
    drawn = np.empty((len(weights), len(shares)))
    for row, weight in enumerate(weights):
        reached = np.cumsum(weight[owner])
        drawn[row] = kl[np.searchsorted(reached, np.floor(shares * (reached[-1] - 1)) + 1)]
    values = np.quantile(kl, shares)
    found = [_figure(name, float(values[at]), drawn[:, at]) for at, name in enumerate(_QUANTILES)]
    return [*found, Figure(name="kld_max", value=float(kl[-1]), low=math.nan, high=math.nan)]


def _figure(name: str, value: float, drawn: Floats) -> Figure:
    if not len(drawn):
        return Figure(name=name, value=value, low=math.nan, high=math.nan)
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(drawn, [tail, 1.0 - tail])
    return Figure(name=name, value=value, low=float(low), high=float(high))


def _delta_p(each: PromptPositions) -> Floats:
    """Probability of the prompt's own tokens by the server, minus by the reference."""
    return np.asarray(np.exp(each.column("candidate_logp")) - np.exp(each.column("reference_logp")))


#: Terms that are averaged over positions.
_TERMS: dict[str, Callable[[PromptPositions], Floats]] = {
    "kl": lambda each: each.column("kl"),
    "reverse_kl": lambda each: each.column("reverse_kl"),
    "tv": lambda each: each.column("tv"),
    "tv_most": lambda each: each.column("tv_most"),
    "same_top": lambda each: each.column("same_top"),
    "nll": lambda each: -each.column("candidate_logp"),
    "nll_base": lambda each: -each.column("reference_logp"),
    "delta_p": _delta_p,
    "delta_p2": lambda each: np.square(_delta_p(each)),
}
#: Figures as functions of these means.
_MADE: dict[str, Callable[[dict[str, Floats]], Floats]] = {
    "ppl": lambda mean: np.exp(mean["nll"]),
    "ppl_base": lambda mean: np.exp(mean["nll_base"]),
    "ppl_ratio": lambda mean: np.exp(mean["nll"] - mean["nll_base"]),
    "kld_mean": lambda mean: mean["kl"],
    "reverse_kld_mean": lambda mean: mean["reverse_kl"],
    "tv_mean": lambda mean: mean["tv"],
    "tv_most": lambda mean: mean["tv_most"],
    "delta_p_mean": lambda mean: mean["delta_p"],
    "delta_p_rms": lambda mean: np.sqrt(mean["delta_p2"]),
    "same_top": lambda mean: mean["same_top"],
}
