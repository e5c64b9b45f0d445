"""The front of an experiment: how fast faults end against how often anybody switches falsely."""

from __future__ import annotations

from typing import Any

from scripts.e5.configurations import Configuration
from scripts.e5.report.plots import FrontPoint
from scripts.e5.results import Episodes, front, summarise


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
