"""Tables of the E5 report: cells with numbers, limits and units, built from leaves of ``e5.json``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from contracts.scoring.measure_table import MEASURE_LABELS, MEASURES

#: Columns of the main table of a group, in order.
INCIDENT_COLUMNS = (
    "quality_preservation",
    "mttr_s",
    "excess_s",
    "unrecovered",
    "infeasible",
    "regret_ratio",
    "false_switches_per_slice_month",
    "false_switches_in_rotation_per_slice_month",
    "detection_lag_s",
    "detection_missed",
    "failed_ratio_incident",
    "exposed_total",
    "forbidden_dispatched",
)
CONTROL_COLUMNS = (
    "quality_preservation",
    "failed_ratio",
    "goodput_ratio",
    "false_switches_per_slice_month",
    "false_quarantines_per_slice_month",
    "false_switches_in_rotation_per_slice_month",
    "capacity_moves_per_slice_month",
    "weight_moved",
)
SCENARIO_COLUMNS = (
    "quality_preservation",
    "mttr_s",
    "violation_lag_s",
    "visible_lag_s",
    "slice_lag_s",
    "excess_s",
    "unrecovered",
    "infeasible",
    "regret_ratio",
    "detection_lag_s",
    "failed_ratio",
    "exposed_total",
    "forbidden_dispatched",
    "false_switches_per_slice_month",
    "false_switches_in_rotation_per_slice_month",
)
COST_COLUMNS = ("accelerator_s", "probe_tokens", "known_good_ratio", "weight_moved", "goodput_ratio")

#: Percentage points by which a configuration must be worse than no policy for its cell to be coloured.
HARM_TOLD = 0.2

_UNITS = {measure.name: measure.unit for measure in MEASURES}
#: Text of a unit in a header, if it is not its own name.
_SHOWN_UNITS = {"ratio": ", %", "1/slice-month": " per slice-month"}
_BETTER = {measure.name: measure.better for measure in MEASURES}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCell:
    """One table cell: text, a small note below it, and ``good``, ``bad`` or no tone."""

    text: str
    note: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Heads and rows of one HTML table."""

    heads: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]


def policy_table(rows: dict[str, Any], policies: Sequence[str], columns: Iterable[str]) -> Table:
    """One row per policy, one column per measure; ``rows`` maps policy to measures to leaves."""
    columns = tuple(columns)
    heads = ("policy", *(f"{MEASURE_LABELS[name]}{_unit_note(name)}" for name in columns))
    body = tuple(
        (TableCell(text=policy), *(_leaf_cell(rows[policy][name], _UNITS[name]) for name in columns))
        for policy in policies
        if policy in rows
    )
    return Table(heads=heads, rows=body)


def difference_table(deltas: dict[str, Any], policies: Sequence[str], configuration: str) -> Table:
    """Paired differences of every policy to ``configuration``; a tone where the interval excludes 0."""
    present = [policy for policy in policies if configuration in deltas[policy]]
    columns = tuple(deltas[present[0]][configuration])
    heads = ("policy", *(f"{MEASURE_LABELS[name]}{_unit_note(name)}" for name in columns))
    rows = tuple(
        (
            TableCell(text=policy),
            *(_difference_cell(deltas[policy][configuration][name], name) for name in columns),
        )
        for policy in present
    )
    return Table(heads=heads, rows=rows)


def ratio_table(ratios: dict[str, Any], policies: Sequence[str], measure: str) -> Table:
    """One row per scenario, one column per policy: a time over that of the configuration compared with."""
    present = [policy for policy in policies if all(policy in row for row in ratios.values())]
    rows = tuple(
        (TableCell(text=name), *(_ratio_cell(row[policy][measure]) for policy in present))
        for name, row in ratios.items()
    )
    return Table(heads=(f"{MEASURE_LABELS[measure]}, ratio", *present), rows=rows)


def _ratio_cell(leaf: dict[str, Any]) -> TableCell:
    if leaf["mean"] is None:
        return TableCell(text="–", note="not applicable")
    if leaf["ci_low"] is None:
        return TableCell(text=f"{leaf['mean']:.2f}")
    tone = "good" if leaf["ci_high"] < 1.0 else "bad" if leaf["ci_low"] > 1.0 else ""
    return TableCell(
        text=f"{leaf['mean']:.2f}", note=f"{leaf['ci_low']:.2f} to {leaf['ci_high']:.2f}", tone=tone
    )


def harm_table(harm: dict[str, Any], measure: str, worse: float) -> Table:
    """Paired differences of one measure of harm, in points: a row per scenario, the worst first, a column per
    policy.

    worse: 1 if more is worse, -1 if less is. A tone if the difference is worse than ``HARM_TOLD``.
    """
    policies = harm["policies"]
    names = list(next(iter(policies.values()))["scenarios"]) if policies else []
    leaves = {name: [row["scenarios"][name][measure] for row in policies.values()] for name in names}

    def harmed(name: str) -> float:
        return max((worse * leaf["mean"] for leaf in leaves[name] if leaf["mean"] is not None), default=0.0)

    rows = tuple(
        (TableCell(text=name), *(_harm_cell(leaf, worse) for leaf in leaves[name]))
        for name in sorted(names, key=harmed, reverse=True)
    )
    return Table(heads=(f"{MEASURE_LABELS[measure]}, points", *policies), rows=rows)


def _harm_cell(leaf: dict[str, Any], worse: float) -> TableCell:
    if leaf["mean"] is None:
        return TableCell(text="–", note="not applicable")
    if leaf["limit"] is None:
        return TableCell(text=f"{leaf['mean']:+.2f}")
    side = "at most" if worse > 0.0 else "at least"
    tone = "bad" if worse * leaf["mean"] > HARM_TOLD else ""
    return TableCell(text=f"{leaf['mean']:+.2f}", note=f"{side} {leaf['limit']:+.2f}", tone=tone)


def slice_table(rows: dict[str, Any], policies: Sequence[str], slices: Sequence[str], measure: str) -> Table:
    """One row per policy, one column per slice, of one measure."""
    body = tuple(
        (TableCell(text=policy), *(_leaf_cell(rows[policy][name][measure], "ratio") for name in slices))
        for policy in policies
    )
    return Table(heads=("policy", *(f"{name}, %" for name in slices)), rows=body)


def _unit_note(name: str) -> str:
    unit = _UNITS[name]
    return _SHOWN_UNITS.get(unit, f", {unit}")


def _leaf_cell(leaf: dict[str, Any], unit: str) -> TableCell:
    if leaf["mean"] is None:
        return TableCell(text="–", note="not applicable")
    note = ""
    if leaf["ci_low"] is not None:
        note = f"{number(leaf['ci_low'], unit)} to {number(leaf['ci_high'], unit)}"
    return TableCell(text=number(leaf["mean"], unit), note=note)


def _difference_cell(leaf: dict[str, Any], name: str) -> TableCell:
    cell = _leaf_cell(leaf, _UNITS[name])
    if leaf["ci_low"] is None or leaf["ci_low"] <= 0.0 <= leaf["ci_high"] or _BETTER[name] == "none":
        return cell
    better = (leaf["mean"] > 0.0) == (_BETTER[name] == "high")
    return TableCell(text=cell.text, note=cell.note, tone="good" if better else "bad")


def number(value: float | None, unit: str) -> str:
    """``value`` formatted: shares in percent, large numbers grouped."""
    if value is None:
        return "–"
    if unit == "ratio":
        text = f"{100 * value:.2f} %" if abs(value) not in (0.0, 1.0) else f"{100 * value:.0f} %"
        return "0.00 %" if text == "-0.00 %" else text
    if unit == "TV/token":
        return f"{value:.5f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}"


def limits(leaf: dict[str, Any]) -> tuple[float, float, float]:
    """(low, mean, high) of a leaf; the mean replaces a missing limit, NaN a missing mean."""
    values = (leaf["ci_low"], leaf["mean"], leaf["ci_high"])
    mean = float("nan") if leaf["mean"] is None else leaf["mean"]
    low, _, high = (mean if value is None else value for value in values)
    return low, mean, high
