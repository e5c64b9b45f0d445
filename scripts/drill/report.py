"""Results of a drill: one JSON object, lines for a terminal, one self-contained page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, select_autoescape

from contracts.loading.files import plain
from contracts.plugins import loaded_sha256
from contracts.scoring.measure_table import MEASURES
from contracts.scoring.timeline import timeline
from faults.drill.outcome import EXIT_CODES, DrillOutcome, outcome_json
from scripts.drill.documents import ReadDrill
from scripts.e5.report.plots import timeline_svg
from scripts.output import write_json, write_whole
from scripts.provenance import RESULT_PACKAGES, cpu_model, git_sha, package_version, sources_sha256

_TEMPLATES = Path(__file__).parent / "templates"


def content_of(
    read: ReadDrill, outcome: DrillOutcome, target: str, policy: str, seed: int, inputs: dict[str, Any]
) -> dict[str, Any]:
    """The result as plain values: verdict, checks, proofs, times, and E5's measures up to the undo.

    inputs: the hashes of its inputs, from ``input_hashes`` at the start.
    """
    run = outcome.run
    measures = {one.name: float(one.value(outcome.measures)) for one in MEASURES if not one.is_count}
    counts = {one.name: float(one.value(outcome.measures)) for one in MEASURES if one.is_count}
    counts = {name.removesuffix("_per_slice_month"): value for name, value in counts.items()}
    content = {
        "drill": read.plan.name,
        **inputs,
        "plugins_sha256": loaded_sha256(),
        "sources_sha256": sources_sha256("live"),
        "git_sha": git_sha(),
        "target": target,
        "policy": policy,
        "seed": seed,
        **outcome_json(outcome),
        "exit_code": EXIT_CODES[outcome.verdict],
        "onset_at_s": run.injected_at_s,
        "offered_requests": int(run.record.offered.sum()),
        "failed_requests": int(run.record.failed.sum() + run.record.shed.sum()),
        "measures": measures | counts,
        "hardware": cpu_model(),
        "versions": {name: package_version(name) for name in RESULT_PACKAGES},
    }
    shown: dict[str, Any] = plain(content)
    return shown


def lines_of(content: dict[str, Any]) -> list[str]:
    """The result as lines, verdict last."""
    lines = []
    for fault in content["faults"]:
        shown = "proved" if fault["happened"] else "NOT proved"
        lines.append(
            f"{fault['fault']} on {', '.join(fault['replicas']) or 'the load'}: {shown}: {fault['evidence']}"
        )
    for check in content["checks"]:
        mark = {True: "ok", False: "missed", None: "open"}[check["passed"]]
        lines.append(f"{mark:>6}  {check['name']}: {check['actual']} (expected {check['expected']})")
    lines.append(f"{content['offered_requests']} requests, {content['failed_requests']} failed")
    lines.append(
        f"{content['drill']} on {content['target']} under {content['policy']}: "
        f"{content['verdict']}: {content['reason']}"
    )
    return lines


def write_report(folder: Path, content: dict[str, Any], outcome: DrillOutcome) -> None:
    """Write ``drill.json`` and ``report.html`` in ``folder``, each completely or not at all."""
    write_json(folder / "drill.json", content, indent=2)
    write_whole(folder / "report.html", page_of(content, outcome))


def page_of(content: dict[str, Any], outcome: DrillOutcome) -> str:
    """The page; it loads nothing from elsewhere."""
    record = outcome.run.record
    health = np.zeros((len(record.table), len(record.kernels), len(record.slices)))
    line = timeline(record, health, content["policy"])
    picture = timeline_svg(line, f"{content['drill']} on {content['target']}") if len(record.table) else ""
    environment = Environment(loader=FileSystemLoader(_TEMPLATES), autoescape=select_autoescape(default=True))
    labels = {one.name.removesuffix("_per_slice_month"): f"{one.label}, {one.unit}" for one in MEASURES}
    rows = [
        (labels.get(name, name), value) for name, value in content["measures"].items() if value is not None
    ]
    page: str = environment.get_template("drill.html.j2").render(content=content, picture=picture, rows=rows)
    return page
