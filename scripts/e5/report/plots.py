"""Plots of the E5 report as inline SVG, and the front that one of them shows.

The front of an experiment: time to recovery against the rate of false switches, per policy configuration.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contracts.scoring.timeline import Timeline
from scripts.e5.configurations import Configuration
from scripts.e5.scores.results import Episodes, front, summarise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#010203"
#: Okabe and Ito, distinguishable with any colour vision; brown instead of their yellow, which is too pale.
PALETTE = ("#999999", "#56b4e9", "#cc79a7", "#e69f00", "#0072b2", "#009e73", "#d55e00", "#8c510a")
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "legend.frameon": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPoint:
    """One policy setting: false switches per slice-month against MTTR, each (low, mean, high)."""

    policy: str
    setting: str
    false_switches: tuple[float, float, float]
    mttr_s: tuple[float, float, float]
    on_front: bool


def colour_of(policy: str, policies: Sequence[str]) -> str:
    """Stable colour of a policy."""
    names = list(policies)
    return PALETTE[names.index(policy) % len(PALETTE)] if policy in names else PALETTE[-1]


@contextmanager
def _figure(salt: str, height_in: float) -> Iterator[Figure]:
    """A figure in the report's style; ``salt`` keeps the ids of the plots on a page apart.

    matplotlib is imported here, because it needs a writable home folder and warns without one.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings: Any = STYLE | {"svg.hashsalt": salt}
    with mpl.rc_context(settings):
        yield Figure(figsize=(7.2, height_in), layout="constrained")


def timeline_svg(line: Timeline, title: str) -> str:
    """Three stacked panels: routing weights, health per kernel, served quality; onset and recovery marked."""
    with _figure(f"timeline {line.policy}", 5.4) as figure:
        weights, health, quality = figure.subplots(3, 1, sharex=True, height_ratios=[2, 1.3, 1.3])
        names = [*line.kernels, "shed"]
        colours = [PALETTE[(1 + i) % len(PALETTE)] for i in range(len(line.kernels))] + [INK]
        weights.stackplot(line.at_s, line.weights.T, labels=names, colors=colours, alpha=0.85, lw=0)
        weights.set(ylabel="traffic", ylim=(0, 1), title=title)
        for index, name in enumerate(line.kernels):
            health.plot(line.at_s, line.health[:, index], color=colours[index], label=name, lw=1.2)
        health.set(ylabel="health H")
        quality.plot(line.at_s, line.quality, color=INK, lw=1.2)
        quality.set(ylabel="quality", xlabel="time, s")
        for axis in (weights, health, quality):
            axis.axvline(line.onset_at_s, color="#d55e00", lw=1.2, ls="--")
            if np.isfinite(line.recovered_at_s):
                axis.axvline(line.recovered_at_s, color="#009e73", lw=1.2, ls="--")
            axis.grid(True)
        figure.legend(
            *weights.get_legend_handles_labels(), loc="outside lower center", ncols=min(len(names), 6)
        )
        return _svg(figure)


def front_svg(points: Sequence[FrontPoint], policies: Sequence[str]) -> str:
    """MTTR against false switches with 95 % limits; settings of a policy are joined, the front is circled."""
    with _figure("front", 4.6) as figure:
        axis = figure.subplots()
        for policy in dict.fromkeys(point.policy for point in points):
            mine = sorted((p for p in points if p.policy == policy), key=lambda p: p.false_switches[1])
            _draw_policy(axis, mine, colour_of(policy, policies))
        ringed = [p for p in points if p.on_front]
        axis.scatter(
            [p.false_switches[1] for p in ringed],
            [p.mttr_s[1] for p in ringed],
            s=150,
            facecolors="none",
            edgecolors=INK,
            lw=1.2,
            label="Pareto front",
        )
        axis.set_xscale("symlog", linthresh=10.0)
        axis.set(xlabel="false switches per slice-month (95 % limits)", ylabel="MTTR, s (restricted mean)")
        axis.set(xlim=(-0.5, None), ylim=(0, None))
        axis.grid(True)
        figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return _svg(figure)


def _draw_policy(axis: Any, points: list[FrontPoint], colour: str) -> None:
    x = [p.false_switches[1] for p in points]
    y = [p.mttr_s[1] for p in points]
    x_error = [_reach(p.false_switches, side) for side in (0, 2) for p in points]
    y_error = [_reach(p.mttr_s, side) for side in (0, 2) for p in points]
    shape = (2, len(points))
    axis.errorbar(
        x,
        y,
        xerr=np.reshape(x_error, shape),
        yerr=np.reshape(y_error, shape),
        color=colour,
        marker="o",
        ms=5,
        lw=1.2,
        elinewidth=0.8,
        label=points[0].policy,
    )


def _reach(limits: tuple[float, float, float], side: int) -> float:
    """Length of an error bar of one configuration; 0 if the limit is unknown."""
    reach = abs(limits[side] - limits[1])
    return reach if np.isfinite(reach) else 0.0


def slices_svg(
    values: NDArray[np.float64], policies: Sequence[str], slices: Sequence[str], title: str
) -> str:
    """One measure per slice and policy; ``values`` is [policies, slices, (low, mean, high)]."""
    with _figure(title, 3.6) as figure:
        axis = figure.subplots()
        width = 0.8 / max(1, len(policies))
        for index, policy in enumerate(policies):
            at = np.arange(len(slices)) + (index - (len(policies) - 1) / 2) * width
            low, mean, high = (values[index, :, side] for side in range(3))
            reach = np.nan_to_num(np.abs(np.stack([mean - low, high - mean])))
            axis.errorbar(
                at, mean, yerr=reach, fmt="o", ms=4, lw=1, color=colour_of(policy, policies), label=policy
            )
        axis.set_xticks(np.arange(len(slices)), slices)
        axis.set(ylabel=title)
        axis.grid(True, axis="y")
        figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return _svg(figure)


def _svg(figure: Figure) -> str:
    """The figure as an ``<svg>`` element that scales with the page and inherits its text colour."""
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    return re.sub(
        r'(<svg [^>]*?) width="[^"]*"',
        r"\1",
        re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", svg, count=1),
        count=1,
    )


def front_points(
    configurations: tuple[Configuration, ...], swept: tuple[str, ...], episodes: Episodes
) -> tuple[FrontPoint, ...]:
    """Every configuration on ``swept``: MTTR of silent numeric incidents against all false switches.

    Both over the same scenarios, so that settings are comparable.
    """
    silent = [n for n in swept if n in episodes.groups.get("silent_numeric", ())]
    if not silent:
        return ()
    found: dict[Configuration, tuple[tuple[float, float, float], tuple[float, float, float]]] = {}
    for configuration in configurations:
        false = summarise(episodes, configuration.name, swept)["false_switches_per_slice_month"]
        mttr = summarise(episodes, configuration.name, silent)["mttr_s"]
        found[configuration] = _three(false), _three(mttr)
    best = front({configuration.name: (false[1], mttr[1]) for configuration, (false, mttr) in found.items()})
    return tuple(
        FrontPoint(
            policy=configuration.policy,
            setting=configuration.setting,
            false_switches=false,
            mttr_s=mttr,
            on_front=configuration.name in best,
        )
        for configuration, (false, mttr) in found.items()
    )


def _three(leaf: dict[str, Any]) -> tuple[float, float, float]:
    low, mean, high = (float("nan") if leaf[k] is None else leaf[k] for k in ("ci_low", "mean", "ci_high"))
    return low, mean, high
