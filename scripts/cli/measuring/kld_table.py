"""Output of ``selvage kld``: the table, and one JSON object."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from contracts.assess.evaluate import Evaluation
from contracts.loading.files import json_text
from scripts.provenance import machine_facts

if TYPE_CHECKING:
    from live.kld.table import Figure, SliceTable

#: Figure -> (heading, factor, whether it is a lower bound if the vocabulary is incomplete).
ROWS: dict[str, tuple[str, float, bool]] = {
    "ppl": ("PPL(server)", 1.0, False),
    "ppl_base": ("PPL(reference)", 1.0, False),
    "ppl_ratio": ("PPL ratio", 1.0, False),
    "kld_mean": ("Mean KLD, nats", 1.0, True),
    "kld_median": ("Median KLD", 1.0, True),
    "kld_p90": ("90.0% KLD", 1.0, True),
    "kld_p99": ("99.0% KLD", 1.0, True),
    "kld_p999": ("99.9% KLD", 1.0, True),
    "kld_max": ("Maximum KLD", 1.0, True),
    "reverse_kld_mean": ("Mean reverse KLD", 1.0, True),
    "tv_mean": ("Mean TV, %", 100.0, True),
    "tv_most": ("Mean TV at most, %", 100.0, False),
    "delta_p_mean": ("Mean dp, %", 100.0, False),
    "delta_p_rms": ("RMS dp, %", 100.0, False),
    "same_top": ("Same top p, %", 100.0, False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KldResult:
    """The results of one comparison."""

    endpoint: str
    route: str
    route_reason: str
    reference: str
    reference_sha256: str
    prompts_sha256: str
    spent_s: float
    reference_s: float
    tables: Sequence[SliceTable]
    evaluation: Evaluation | None


def as_json(result: KldResult) -> str:
    """Sorted keys; limits that do not exist are null."""
    evaluation = result.evaluation
    told = {
        key: getattr(result, key)
        for key in ("endpoint", "route", "route_reason", "reference", "reference_sha256", "prompts_sha256")
    }
    judged = None if evaluation is None else asdict(evaluation) | {"outcome": evaluation.outcome}
    return json_text(
        told
        | {
            "spent_s": result.spent_s,
            "reference_s": result.reference_s,
            "slices": [_slice_json(each) for each in result.tables],
            "evaluation": judged,
            "machine": machine_facts(),
        },
        indent=2,
    )


def show(console: Console, result: KldResult) -> None:
    """The table, and how it was obtained."""
    table = Table(box=SIMPLE_HEAD, title=f"{result.endpoint} against {result.reference}")
    table.add_column("", no_wrap=True)
    for each in result.tables:
        table.add_column(f"{each.slice}\n{each.positions} positions", justify="right", overflow="fold")
    for name, (heading, factor, is_bound) in ROWS.items():
        if any(figure.name == name for figure in result.tables[0].figures):
            least = " ≥" if is_bound and not result.tables[0].exact else ""
            table.add_row(heading + least, *(_cell(each[name], factor) for each in result.tables))
    console.print(table)
    for line in _words(result):
        console.print(line)


def _words(result: KldResult) -> list[str]:
    lines = ["± is half the width of the 95 % interval, by bootstrap over prompts; extremes have none."]
    if not all(each.exact for each in result.tables):
        lines.append(
            "≥: lower bounds, because the server tells its most probable tokens alone. KL has no upper one."
        )
    positions = result.tables[-1].positions
    rate = positions / result.spent_s if result.spent_s else math.inf
    lines.append(
        f"Route {result.route}: {positions} positions in {result.spent_s:.1f} s ({rate:.0f} a second)."
        + (f" No quicker one: {result.route_reason}." if result.route_reason else "")
    )
    return lines


def _cell(figure: Figure, factor: float) -> str:
    value, half = factor * figure.value, factor * (figure.high - figure.low) / 2.0
    if math.isnan(half):
        return _number(value, 5)
    return f"{_number(value, 5)}±{_number(half, 2, places=0)}"


def _number(value: float, digits: int, places: int = 2) -> str:
    """``digits`` in all, or with an exponent and ``places`` if it is small."""
    return f"{value:.{places}e}" if 0.0 < abs(value) < 1e-2 else f"{value:.{digits}g}"


def _slice_json(each: SliceTable) -> dict[str, object]:
    figures = {one.name: {"value": one.value, "low": one.low, "high": one.high} for one in each.figures}
    facts = {"slice": each.slice, "prompts": each.prompts, "positions": each.positions, "exact": each.exact}
    return facts | {"figures": figures}
