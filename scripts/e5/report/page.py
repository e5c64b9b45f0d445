"""The E5 report: one self-contained HTML page from the tables of ``e5.json`` and an example's timelines.

Nothing is computed here that is not in ``e5.json``; the page only chooses and formats.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, select_autoescape

from contracts.scoring.timeline import Timeline
from scripts.e5.report.budget_table import budget_table, budget_text
from scripts.e5.report.plots import FrontPoint, front_svg, slices_svg, timeline_svg
from scripts.e5.report.sections import (
    BUDGET_TEXT,
    COST_TEXT,
    DEFINITIONS,
    FRONT_TEXT,
    GROUP_TEXT,
    HARM_TEXT,
    RATIO_TEXT,
    SLICE_TEXT,
    TIMELINE_TEXT,
    CollapsibleSection,
    Section,
    at_rest_section,
)
from scripts.e5.report.tables import (
    CONTROL_COLUMNS,
    COST_COLUMNS,
    INCIDENT_COLUMNS,
    SCENARIO_COLUMNS,
    Table,
    TableCell,
    difference_table,
    harm_table,
    limits,
    number,
    policy_table,
    ratio_table,
    slice_table,
)
from scripts.e5.suite import GROUP_LABELS

#: Configurations named in the first sentence.
HEADLINE = ("fixed", "breaker", "hysteresis", "sequential")
#: Name of the world, by the header's target.
_WORLDS = {
    "sim": "Simulated fleet; kernels and numeric faults as measured in the profiles named below.",
    "local": "Real vLLM servers behind Envoy on one machine; every episode is a drill, measured to its undo.",
    "kubernetes": "vLLM pods of a cluster behind a gateway; every episode is a drill, measured to the undo.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportInput:
    """Input of a report; ``content`` is the object of ``e5.json``.

    policies: the main configurations in report order. timelines: the same incident under several policies.
    """

    content: dict[str, Any]
    policies: tuple[str, ...]
    timelines: tuple[Timeline, ...]
    points: tuple[FrontPoint, ...]
    example: str


def render(report: ReportInput) -> str:
    """The page as text."""
    loader = FileSystemLoader(Path(__file__).with_name("templates"))
    environment = Environment(loader=loader, autoescape=select_autoescape(["html", "j2"]), trim_blocks=True)
    page: str = environment.get_template("report.html.j2").render(
        title="E5: fixed kernel against routing policies under injected faults",
        summary=_summary(report),
        subtitle=_subtitle(report.content["header"]),
        sections=_sections(report),
        header=_header(report.content["header"]),
        definitions=DEFINITIONS,
    )
    return page


def _summary(report: ReportInput) -> str:
    group = report.content["groups"].get("silent_numeric")
    if not group:
        return "No silent numeric fault in this suite."
    parts = [
        f"{policy} keeps {number(group[policy]['quality_preservation']['mean'], 'ratio')} of the healthy "
        f"quality and recovers in {number(group[policy]['mttr_s']['mean'], 's')} s"
        for policy in HEADLINE
        if policy in group
    ]
    return "Under silent numeric faults " + "; ".join(parts) + " (restricted means)."


def _counted(number: int, of: str) -> str:
    return f"1 {of}" if number == 1 else f"{number} {of}s"


def _subtitle(header: dict[str, Any]) -> str:
    pools = ", ".join(header.get("pools", ())) or "unnamed"
    return (
        f"Pool {pools} under contract {header['contract']}. "
        f"{_counted(header['seeds'], 'paired seed')}, {_counted(len(header['scenarios']), 'scenario')}, "
        f"horizon {header['horizon_s']:.0f} s. "
        f"{_WORLDS[header.get('target', 'sim')]}"
    )


def _sections(report: ReportInput) -> list[Section]:
    content = report.content
    broken = content["header"].get("broken_at_rest", [])
    found = [at_rest_section(broken)] if broken else []
    found += [_group_section(report, group) for group in ("silent_numeric",) if group in content["groups"]]
    found += [_harm_section(content["harm"])]
    found += [_front_section(report), _timeline_section(report), _slice_section(report)]
    found += [
        _group_section(report, group)
        for group in ("silent_other", "visible", "near_miss", "control")
        if group in content["groups"]
    ]
    found += [_budget_section(report)] if content.get("budgets") else []
    return [*found, _cost_section(report), _scenario_section(report)]


def _group_section(report: ReportInput, group: str) -> Section:
    columns = CONTROL_COLUMNS if group in ("control", "near_miss") else INCIDENT_COLUMNS
    rows = report.content["groups"][group]
    deltas = report.content["differences"][group]
    faster = report.content.get("ratios") if group == "silent_numeric" else None
    folds = tuple(
        CollapsibleSection(
            title=f"Paired differences to {configuration}",
            tables=(difference_table(deltas, report.policies, configuration),),
        )
        for configuration in ("fixed", "breaker", "hysteresis")
        if any(configuration in deltas[p] for p in report.policies)
    )
    if faster:
        shown = (ratio_table(faster, report.policies, name) for name in ("mttr_s", "slice_lag_s"))
        folds += (CollapsibleSection(title=RATIO_TEXT, tables=tuple(shown)),)
    label = GROUP_LABELS[group]
    title = label[0].upper() + label[1:]
    return Section(
        title=title,
        text=(GROUP_TEXT[group],),
        tables=(policy_table(rows, report.policies, columns),),
        folds=folds,
    )


def _harm_section(harm: dict[str, Any]) -> Section:
    shown = (("useful_ratio", -1.0), ("failed_or_exposed_ratio", 1.0)) if harm["policies"] else ()
    tables = tuple(harm_table(harm, measure, worse) for measure, worse in shown)
    return Section(title="Harm", text=(HARM_TEXT if shown else harm["note"],), tables=tables)


def _front_section(report: ReportInput) -> Section:
    text = (FRONT_TEXT,)
    heads = ("setting", "MTTR, s", "false switches per slice-month", "on the front")
    rows = tuple(
        (
            TableCell(text=f"{p.policy} {p.setting}".strip()),
            TableCell(text=f"{p.mttr_s[1]:.1f}", note=f"{p.mttr_s[0]:.1f} to {p.mttr_s[2]:.1f}"),
            TableCell(
                text=f"{p.false_switches[1]:.1f}",
                note=f"{p.false_switches[0]:.1f} to {p.false_switches[2]:.1f}",
            ),
            TableCell(text="yes" if p.on_front else ""),
        )
        for p in report.points
    )
    plot = front_svg(report.points, report.policies)
    fold = CollapsibleSection(title="All settings as a table", tables=(Table(heads=heads, rows=rows),))
    return Section(title="Recovery against false switches", text=text, plots=(plot,), folds=(fold,))


def _timeline_section(report: ReportInput) -> Section:
    if not report.timelines:
        return Section(title="Through one incident", text=("No example was kept.",))
    text = (f"Scenario {report.example}. {TIMELINE_TEXT}",)
    shown = [timeline_svg(line, line.policy) for line in report.timelines]
    return Section(
        title="Through one incident",
        text=text,
        plots=tuple(shown[-1:]),
        folds=tuple(
            CollapsibleSection(title=line.policy, plots=(svg,))
            for line, svg in zip(report.timelines, shown[:-1], strict=False)
        ),
    )


def _slice_section(report: ReportInput) -> Section:
    slices = report.content["header"]["slices"]
    groups = report.content["slices"]
    group = "silent_numeric" if "silent_numeric" in groups else next(iter(groups))
    rows = groups[group]
    plots = []
    for measure, label in (
        ("quality_preservation", "quality preserved"),
        ("contract_kept_ratio", "time inside contract"),
    ):
        values = np.array(
            [[limits(rows[p][s][measure]) for s in slices] for p in report.policies], dtype=np.float64
        )
        plots.append(slices_svg(values, report.policies, slices, label))
    tables = tuple(
        slice_table(rows, report.policies, slices, measure)
        for measure in ("quality_preservation", "contract_kept_ratio")
    )
    text = (f"For {GROUP_LABELS[group]}. {SLICE_TEXT}",)
    folds = tuple(
        CollapsibleSection(title=f"{name} as a table", tables=(table,))
        for name, table in zip(("Quality preserved", "Clause pass rate"), tables, strict=True)
    )
    return Section(title="Slice by slice", text=text, plots=tuple(plots), folds=folds)


def _budget_section(report: ReportInput) -> Section:
    """The false-switch budget of each configuration that has one, and its split over streams."""
    folds = tuple(
        CollapsibleSection(title=f"{configuration}: {budget_text(split)}", tables=(budget_table(split),))
        for configuration, split in report.content["budgets"].items()
    )
    return Section(title="Budget of false switches", text=(BUDGET_TEXT,), folds=folds)


def _cost_section(report: ReportInput) -> Section:
    rows = report.content["results"]
    text = (COST_TEXT,)
    return Section(title="Cost", text=text, tables=(policy_table(rows, report.policies, COST_COLUMNS),))


def _scenario_section(report: ReportInput) -> Section:
    descriptions = {row["name"]: row["description"] for row in report.content["header"]["scenarios"]}
    folds = tuple(
        CollapsibleSection(
            title=f"{name}: {descriptions.get(name, '')}",
            tables=(policy_table(rows, report.policies, SCENARIO_COLUMNS),),
        )
        for name, rows in report.content["scenarios"].items()
    )
    return Section(title="Scenario by scenario", folds=folds)


def _header(header: dict[str, Any]) -> list[tuple[str, str]]:
    told = ("scenarios", "broken_at_rest", "episodes")
    return [(name, _plain(value)) for name, value in header.items() if name not in told]


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_plain(inner) for inner in value)
    return str(value)
