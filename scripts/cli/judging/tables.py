"""Tables and JSON of ``selvage contract evaluate|bounds``; display only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from contracts.assess.assumptions import Assumption
from contracts.assess.attribution import Attribution
from contracts.assess.evaluate import ClauseVerdict, Evaluation
from contracts.assess.gate import open_promises, unseen_slices
from contracts.assess.limits import ConfidenceLimits
from contracts.assess.verdicts import ContractVerdict
from contracts.loading.files import json_text
from contracts.plugins import loaded_sha256
from scripts.output import TABLE_WIDTH

if TYPE_CHECKING:  # tables are for people; a gate writes JSON or JUnit
    from rich.console import Console

    from contracts.assess.bound_table import BoundRow


_STYLES = {
    ContractVerdict.PASS: "green",
    ContractVerdict.FAIL: "bold red",
    ContractVerdict.INCONCLUSIVE: "yellow",
    ContractVerdict.NOT_MEASURED: "dim",
}


def evaluation_json(
    evaluation: Evaluation,
    attributions: Sequence[Attribution],
    assumptions: Sequence[Assumption],
    profile_sha256: Sequence[str] = (),
) -> str:
    """Everything, with sorted keys; limits that do not exist (one observation) and missing bounds are null.

    profile_sha256: of the given profiles, the basis of attributions.
    """
    outcome = evaluation.outcome
    record = asdict(evaluation) | {
        "outcome": outcome,
        "exit_code": outcome.exit_code,
        "profile_sha256": list(profile_sha256),
        "plugins_sha256": loaded_sha256(),
        "attributions": [asdict(each) for each in attributions],
        "assumptions": [asdict(each) for each in assumptions],
    }
    return json_text(record, indent=2)


def bounds_json(rows: Sequence[BoundRow], assumptions: Sequence[Assumption]) -> str:
    """Rows and assumptions, sorted keys."""
    found = {"bounds": [asdict(row) for row in rows], "assumptions": [asdict(each) for each in assumptions]}
    return json_text(found, indent=2)


def wide_console() -> Console:
    """A console for tables: as wide as the terminal, ``TABLE_WIDTH`` if the output is not a terminal."""
    from rich.console import Console

    console = Console(markup=False, highlight=False)
    return console if console.is_terminal else Console(markup=False, highlight=False, width=TABLE_WIDTH)


def show_evaluation(console: Console, evaluation: Evaluation) -> None:
    """One row per judged clause and slice, reasons for undecided ones, then the verdict."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    title = f"{evaluation.contract} on {evaluation.condition} ({evaluation.split} prompts)"
    table = Table(title=title, box=SIMPLE_HEAD)
    for heading in ("clause", "slice", "verdict", "judged (limits)"):
        table.add_column(heading, overflow="fold", no_wrap=True)
    for heading in ("threshold", "n", "over"):
        table.add_column(heading, overflow="fold")
    for clause in evaluation.clauses:
        if clause.verdict is not ContractVerdict.NOT_MEASURED:
            table.add_row(*_cells(clause), style=_STYLES[clause.verdict])
    console.print(table)
    for verdict in (ContractVerdict.INCONCLUSIVE, ContractVerdict.NOT_MEASURED):
        for line in _undecided(evaluation, verdict):
            console.print(line, style=_STYLES[verdict])
    for name in unseen_slices(evaluation.clauses):
        console.print(f"slice {name}: no sample", style=_STYLES[ContractVerdict.INCONCLUSIVE])
    for lost in evaluation.unreadable:
        message = f"unreadable: {lost.column} on {lost.slice}: {lost.count} of {lost.prompts} prompts"
        console.print(f"{message} (no number, or none that it can be)", style="yellow")
    style = _STYLES[evaluation.verdict]
    counts = ", ".join(f"{n} {name}" for name, n in _counts(evaluation))
    console.print(Text.assemble("verdict ", (str(evaluation.outcome), style), f" ({counts})"))
    console.print(f"contracted convergence: {evaluation.convergence}")


def _undecided(evaluation: Evaluation, verdict: ContractVerdict) -> list[str]:
    """One line for each clause and reason; those that keep the evaluation open are marked."""
    places: dict[tuple[str, str, str], list[str]] = {}
    still_open = {(each.clause_id, each.slice) for each in open_promises(evaluation.clauses)}
    for clause in evaluation.clauses:
        if clause.verdict is verdict:
            binds = (clause.clause_id, clause.slice) in still_open
            note = f"; waived: {clause.waived}" if clause.waived else "; must be shown or waived"
            note = note if binds or clause.waived else ""
            places.setdefault((clause.clause_id, clause.reason, note), []).append(clause.slice)
    label = str(verdict).replace("_", " ")
    return [f"{label}: {name} on {', '.join(on)}: {why}{note}" for (name, why, note), on in places.items()]


def _cells(clause: ClauseVerdict) -> list[str]:
    judged, over = clause.judged, clause.exceedance
    rate = over is not None and over.tolerated is not None
    threshold = f"{clause.threshold:.3g} {clause.unit}"
    return [
        f"{clause.clause_id}{' (hard)' if clause.hard else ''}",
        f"{clause.slice} (all)" if clause.pooled else clause.slice,
        str(clause.verdict),
        "" if judged is None else _range(judged, rate),
        f"{threshold}, share {clause.limit:.3g}" if rate else threshold,
        "" if over is None else str(over.observations),
        "" if over is None else str(over.count),
    ]


def _range(limits: ConfidenceLimits, rate: bool) -> str:
    share = "share " if rate else ""
    return f"{share}{limits.value:.3g} ({limits.low:.3g} .. {limits.high:.3g})"


def _counts(evaluation: Evaluation) -> list[tuple[str, int]]:
    found = [clause.verdict for clause in evaluation.clauses]
    return [(str(verdict), found.count(verdict)) for verdict in ContractVerdict if verdict in found]


def show_attributions(console: Console, attributions: Sequence[Attribution]) -> None:
    """Possible explanations of each failed clause."""
    for each in attributions:
        console.print(f"{each.clause_id} on {each.slice} ({each.observed:.3g}): {each.reason}")


def show_assumptions(console: Console, assumptions: Sequence[Assumption]) -> None:
    """A1 to A3, one line each."""
    for each in assumptions:
        console.print(f"{each.id} {each.standing}: {each.statement}. {each.evidence}")


def show_bounds(console: Console, rows: Sequence[BoundRow]) -> None:
    """Bounds beside measurements; an empty measured cell means that the samples lack the quantity."""
    from rich.table import Table

    table = Table(title="Bounds (what could be) beside measurements (what was)")
    for heading in ("scope", "quantity", "bound", "sharp", "paper", "measured", "rests on"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        paper = "" if row.paper is None else f"{row.paper:.3g}"
        measured = "not measured" if row.measured is None else f"{row.measured:.3g}"
        table.add_row(
            row.scope, row.quantity, row.formula, f"{row.sharp:.3g}", paper, measured, ", ".join(row.needs)
        )
    console.print(table)
