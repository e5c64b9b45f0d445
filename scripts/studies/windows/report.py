"""``python -m scripts.studies.windows.report docs``: ``selvage bench windows`` on the page of results.

Writes the table of settings, the table of faults and the plot. The numbers are those of the benchmark, on the
same seeds; nothing is chosen here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.scoring.intervals import poisson_rate
from scripts.output import fill, table
from scripts.studies.detection.plots import COLOURS, figure_of, save_figure
from scripts.studies.detection.report import PAGE
from scripts.studies.windows.compare import WindowComparison, ratio, shipped_result, verdict

NAMES = {
    "sequential": "sequential",
    "least_worst": "window, least worst",
    "least_mean": "window, least mean",
}


def main(folder: Path) -> None:
    """Fill the marks of ``tables`` in ``PAGE`` and draw the plot."""
    result = shipped_result()
    fill(folder / PAGE, tables(result))
    save_plot(result, folder / "detection-windows.svg")


def tables(result: WindowComparison) -> dict[str, list[str]]:
    """Both tables as Markdown."""
    return {
        "windows": settings_table(result),
        "windows-faults": faults_table(result),
        "forms": forms_table(result),
    }


def settings_table(result: WindowComparison) -> list[str]:
    """The matched settings, the seeds on which they were chosen, and their false switches on fresh ones."""
    finals = {
        configuration.watch.spec: (name, counted)
        for name, (configuration, _, counted) in result.final.items()
    }
    rows = []
    for configuration in result.configurations:
        name, counted = finals.get(configuration.watch.spec, ("", None))
        fresh = ""
        if counted is not None:
            found = poisson_rate(counted.episodes, counted.slice_months)
            fresh = f"{counted.episodes}: {found.mean:.0f} ({found.ci_low:.0f} to {found.ci_high:.0f})"
        loose = 10.0**configuration.found.setting
        setting = f"budget {loose:.3g}" if configuration.watch.sequential else f"confidence {1.0 - loose:.6g}"
        matched = (
            str(configuration.found.count)
            if configuration.found.reached
            else f"{configuration.found.count}, out of reach"
        )
        rows.append(
            [
                _plain(configuration.watch.spec),
                setting,
                matched,
                f"{configuration.worst:.0f}",
                f"{configuration.mean:.1f}",
                NAMES.get(name, ""),
                fresh,
            ]
        )
    head = (
        "watch",
        "matched setting",
        "false switches",
        "worst lag, s",
        "mean lag, s",
        "chosen as",
        "false switches on fresh seeds: per slice-month",
    )
    return table(head, rows)


def _plain(spec: str) -> str:
    """``hysteresis:window_s=60,min_samples=20`` in readable form."""
    if not spec.startswith("hysteresis:"):
        return spec
    values = dict(part.split("=") for part in spec.partition(":")[2].split(","))
    return f"window {values['window_s']} s, {values['min_samples']} observations"


def faults_table(result: WindowComparison) -> list[str]:
    """Per fault: lag and MTTR of both chosen windows and of sequential, ratios, and verdicts."""
    mine = result.final["sequential"][1]
    rows = []
    for index, case in enumerate(result.cases):
        cells = [case.label]
        for name in ("lag", "mttr"):
            own = getattr(mine, name)[index]
            cells.append(f"{np.nanmean(own):.1f}")
            cells += [
                _against(own, getattr(result.final[window][1], name)[index], f"{name}/{case.label}")
                for window in ("least_worst", "least_mean")
            ]
        rows.append([*cells, f"{np.nanmean(mine.mttr[index]) - result.lower_bound_s:.1f}"])
    head = (
        "fault",
        "lag, s",
        "least worst: lag, s (ratio)",
        "least mean: lag, s (ratio)",
        "MTTR, s",
        "least worst: MTTR, s (ratio)",
        "least mean: MTTR, s (ratio)",
        "MTTR beyond the lower bound, s",
    )
    return table(head, rows)


def forms_table(result: WindowComparison) -> list[str]:
    """Per fault mean lag and MTTR of every form of the sequential detector at the contract's own budget."""
    rows = [
        [
            case.label,
            *(
                f"{np.nanmean(times.lag[index]):.1f} / {np.nanmean(times.mttr[index]):.1f}"
                for times in result.forms.values()
            ),
        ]
        for index, case in enumerate(result.cases)
    ]
    heads = [f"{spec}, repeat noise {noise:g}" for spec, noise in result.forms]
    return table(["fault: lag / MTTR, s", *heads], rows)


def _against(own: NDArray[np.float64], other: NDArray[np.float64], name: str) -> str:
    found = ratio(own, other, name)
    limits = f"{found.mean:.2f}, {found.ci_low:.2f} to {found.ci_high:.2f}: {verdict(found)}"
    return f"{np.nanmean(other):.1f} ({limits})"


def save_plot(result: WindowComparison, path: Path) -> None:
    """Mean lag over the faults in the order of the table, whole kernels and single replicas apart."""
    figure, axes = figure_of()
    for place, (name, (_, times, _)) in enumerate(result.final.items()):
        means = np.nanmean(times.lag, axis=1)
        for whole, style in ((True, "o-"), (False, "s--")):
            mine = [index for index, case in enumerate(result.cases) if case.whole is whole]
            label = f"{NAMES[name]}, {'whole kernel' if whole else 'one replica'}"
            axes.plot(
                range(len(mine)),
                means[mine],
                style,
                color=COLOURS[(1, 3, 4)[place]],
                markersize=3,
                label=label,
            )
    wholes = [case.name for case in result.cases if case.whole]
    axes.set_xticks(range(len(wholes)), wholes, rotation=40, ha="right", fontsize=7)
    axes.set_yscale("log")
    axes.set_ylabel("mean detection lag, s")
    axes.set_title("Measured faults at equal false switches")
    save_figure(figure, axes, path)


def _arguments(words: list[str]) -> Any:
    return Path(words[0] if words else "docs")


if __name__ == "__main__":
    main(_arguments(sys.argv[1:]))
