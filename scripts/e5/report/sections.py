"""Parts of the E5 report's page: headings with what stands below them, and what is broken at rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scripts.e5.report.tables import Table, TableCell
from simulator.world.at_rest import CONSEQUENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Plots and tables behind a summary line."""

    title: str
    plots: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One heading with its text, plots, tables and folded parts."""

    title: str
    text: tuple[str, ...] = ()
    plots: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    folds: tuple[Fold, ...] = ()


def at_rest_section(broken: list[dict[str, Any]]) -> Section:
    """What home kernels break with nothing injected: before every number that it makes meaningless."""
    heads = ("home kernel", "slice", "clause", "measured", "limit", "unit", "scenarios")
    rows = tuple(
        (
            TableCell(text=row["kernel"]),
            TableCell(text=row["slice"]),
            TableCell(text=f"{row['clause_id']}{' (hard)' if row['hard'] else ''}"),
            TableCell(text=f"{row['value']:.3g}", tone="bad"),
            TableCell(text=f"{row['limit']:.3g}"),
            TableCell(text=row["unit"]),
            TableCell(text=str(len(row["scenarios"])), note=", ".join(row["scenarios"][:3])),
        )
        for row in broken
    )
    told = f"{CONSEQUENCE[0].upper()}{CONSEQUENCE[1:]}."
    return Section(title="Broken at rest", text=(told,), tables=(Table(heads=heads, rows=rows),))
