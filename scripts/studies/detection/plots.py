"""The plots of docs/detection-results.md, as SVG that changes only with its numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from contracts.loading.files import written
from controller.detect.calibration.calibrate import MOST_DIRECT, calibrated_threshold
from controller.detect.calibration.laws import Normal
from controller.detect.calibration.simulate import LawChange, delays
from controller.detect.streams.classical import Ewma, WindowMean, gaussian_cusum
from controller.detect.streams.eprocess import Gaussian
from controller.detect.streams.protocol import StreamDetector
from scripts.studies.detection.cases import SEED

mpl.use("Agg")
#: Shift of the plotted operating characteristic, in standard deviations.
SHIFT = 1.0
LEVELS = (1e2, 3e2, 1e3, 3e3, 1e4, 3e4, 1e5, 1e6, 1e7, 1e8, 1e9)
COLOURS = ("#000000", "#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#009e73")


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Delay against ARL0 of one detector."""

    name: str
    arl0: tuple[float, ...]
    delay: tuple[float, ...]


def operating_curves() -> list[Curve]:
    """Delay against ARL0; window and EWMA only as far as simulation reaches."""
    near = tuple(level for level in LEVELS if level <= MOST_DIRECT)
    return [
        _curve("CUSUM, laws known", gaussian_cusum(SHIFT), LEVELS),
        _curve("e-SR, calibrated", Gaussian(), LEVELS),
        _curve("e-SR, guaranteed", Gaussian(), LEVELS, guaranteed=True),
        _curve("sliding mean of 50", WindowMean(length=50), near),
        _curve("tumbling mean of 50", WindowMean(length=50, tumbling=True), near),
        _curve("EWMA 0.05", Ewma(gain=0.05), near),
    ]


def _curve(name: str, detector: StreamDetector, levels: tuple[float, ...], guaranteed: bool = False) -> Curve:
    found = [_delay(detector, _level(detector, arl0, guaranteed)) for arl0 in levels]
    return Curve(name=name, arl0=levels, delay=tuple(found))


def _level(detector: StreamDetector, arl0: float, guaranteed: bool) -> float:
    if guaranteed:
        return math.log(arl0)
    return calibrated_threshold(detector, Normal(), arl0, seed=SEED, runs=2000).threshold


def _delay(detector: StreamDetector, threshold: float) -> float:
    """Mean over changes after 200 to 245 observations, so that a tumbling window's phase is averaged."""
    found = [
        delays(
            detector,
            threshold,
            LawChange(Normal(), Normal(mean=SHIFT), 200 + phase),
            runs=400,
            seed=SEED + phase,
        ).mean
        for phase in range(0, 50, 5)
    ]
    return float(np.mean(found))


def save_operating(curves: list[Curve], path: Path) -> None:
    """Delay (samples) over ARL0 (samples), ARL0 on a log scale."""
    figure, axes = figure_of()
    for curve, colour in zip(curves, COLOURS, strict=False):
        style = "--" if "guaranteed" in curve.name else "-"
        axes.plot(curve.arl0, curve.delay, style, color=colour, label=curve.name, marker="o", markersize=3)
    axes.set_xscale("log")
    axes.set_xlabel("mean run length to a false alarm, samples (ARL0)")
    axes.set_ylabel("mean delay, samples")
    axes.set_title("A mean moves up by one standard deviation")
    save_figure(figure, axes, path)


def save_doses(points: list[tuple[str, float, float]], path: Path) -> None:
    """Seconds to an alarm over the dose, ``points`` are (group, nats, seconds)."""
    figure, axes = figure_of()
    for place, group in enumerate(dict.fromkeys(group for group, _, _ in points)):
        own = sorted((nats, seconds) for name, nats, seconds in points if name == group)
        axes.plot(*zip(*own, strict=True), "o-", color=COLOURS[place], markersize=3, label=group)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("dose: mean KL to the reference over slices, nats")
    axes.set_ylabel("median seconds to the alarm")
    axes.set_title("Measured faults of one replica of twelve, one false switch per slice-month")
    save_figure(figure, axes, path)


def figure_of() -> tuple[Any, Any]:
    """One plot: figure and axes."""
    import matplotlib.pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "selvage"
    mpl.rcParams["svg.fonttype"] = "none"
    return plt.subplots(figsize=(7.2, 4.2))


def save_figure(figure: Any, axes: Any, path: Path) -> None:
    """Write the plot to ``path``, whole or not at all."""
    axes.grid(True, alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    with written(path) as file:
        figure.savefig(file, format="svg", metadata={"Date": None})
