"""Every detector on synthetic streams, those of river included where it is installed."""

from __future__ import annotations

from scripts.studies.detection.cases import Figures, all_figures, changes, yardstick
from scripts.studies.detection.river import river_figures, river_missing


def synthetic_figures() -> list[Figures]:
    """Every detector on every synthetic stream."""
    rows: list[Figures] = []
    for family in ("normal", "ones"):
        rows += all_figures(family)
        if not river_missing():
            streams = changes(family)
            rows += river_figures(streams, [yardstick(change) for change in streams])
    return rows
