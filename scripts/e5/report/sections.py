"""Sections of the E5 report's page: their texts, the definition of each measure, and headings with their
content.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scripts.e5.report.tables import Table, TableCell
from simulator.world.at_rest import CONSEQUENCE

#: Name and meaning of the tables' measures.
DEFINITIONS: tuple[tuple[str, str], ...] = (
    (
        "incident",
        "From fault onset to the horizon, judged on ground truth. No incident where the truth never "
        "breaks the contract.",
    ),
    (
        "detection lag",
        "Onset to the first action that takes traffic from a violating replica or kernel. A miss "
        "counts as the time to the horizon; incidents whose faulty kernel carried no traffic are left "
        "out.",
    ),
    (
        "MTTR",
        "Onset to the first instant from which every slice stays inside the contract and its SLO for "
        "60 s (two periods of an intermittent fault). More than 1 % of a slice failed or shed, or more than "
        "5 % "
        "of its answers late, over the trailing 30 s is outside. Unrecovered incidents count as the "
        "time to the horizon (restricted mean).",
    ),
    (
        "infeasible",
        "Not even the best that can be recovers: the replicas that keep the contract, each at the most that "
        "it carries in steady state, cannot take 99 % of every slice for 60 s (two periods of an "
        "intermittent fault) anywhere from the onset on. Such incidents are no part of MTTR, unrecovered, "
        "and the lags to recovery.",
    ),
    (
        "regret, infeasible",
        "Useful tokens that this best would have answered from the onset on beyond those that were, per "
        "offered token; of infeasible incidents alone.",
    ),
    (
        "breach to recovery",
        "The same from the first instant at which the truth violates the contract, which a slow fault does "
        "long after its onset; visible breach: from when the telemetry of a violating replica gets through.",
    ),
    (
        "slowest slice, beyond the lower bound",
        "Slice by slice, from its own first visible violation until it is inside again; of the slowest. The "
        "lower bound of the delay is one probe interval of a replica (one scrape interval where no fault is "
        "numeric) and one tick.",
    ),
    (
        "rollback success",
        "Share of incidents that recovered before the horizon: 100 % less the unrecovered ones.",
    ),
    (
        "quality loss",
        "Excess total variation to the reference per offered token; a shed or failed token counts 1.",
    ),
    (
        "quality preserved",
        "(1 - loss in the window) / (1 - loss of the healthy baseline), the baseline being the fixed "
        "configuration before the onset with the same arrivals.",
    ),
    (
        "useful tokens",
        "Output tokens of answers inside the SLO by a replica that broke nothing a hard clause guards when "
        "the request was routed there, less their excess total variation, per offered token.",
    ),
    (
        "failed or exposed",
        "Failed and shed requests and exposed answers, per offered request.",
    ),
    (
        "exposures from onset",
        "Answers on slices with a hard clause by a replica that violates the contract, from onset on, those "
        "in flight at the last change included.",
    ),
    (
        "sent where the plan forbids",
        "Attempts dispatched to a kernel that the plan in force closes for the slice, later than the plan "
        "was acknowledged. A shielded configuration has none.",
    ),
    (
        "false switch",
        "A switch episode (a slice's row moves by more than 5 %, or a replica is quarantined; closed "
        "after 60 s of rest) whose kernel or replica did not violate the contract in the last 60 s. "
        "Moves for capacity are counted apart. Exact Poisson limits.",
    ),
    (
        "false switch in rotation",
        "The same, but a kernel is judged by what its replicas did while in rotation: one whose bad replica "
        "is quarantined or dead does not count as violating.",
    ),
    (
        "intervals",
        "95 %, bootstrap over seeds (all scenarios of a seed together); differences are paired: every "
        "policy sees the same arrivals, prompts and faults.",
    ),
)

FRONT_TEXT = (
    "Left is calmer, down is faster. Each joined line is one policy at several alarm confidences, so "
    "that policies can be compared at equal false-switch rates; ringed settings are beaten by none. "
    "False switches count over every scenario that the settings share, controls included; MTTR over its "
    "silent numeric incidents."
)
TIMELINE_TEXT = (
    "One seed, the same arrivals under each policy. Dashed: fault onset, and recovery where there is "
    "one. Health is what the controller believed; quality is the truth."
)
HARM_TEXT = (
    "Paired differences to fixed-bare, which never moves anything, in percentage points, the worst scenarios "
    "first. Each limit is one-sided; those of a policy hold together over all scenarios at 95 % (paired t, "
    "Bonferroni)."
)
SLICE_TEXT = (
    "A mean hides a slice that broke. Above the quality preserved, below the share of control intervals "
    "in which the slice's traffic was inside every clause and its SLO (its clause pass rate)."
)
RATIO_TEXT = "Times of recovery as ratios to hysteresis, whose windows are the contract's own"
BUDGET_TEXT = (
    "What each detector with a budget may cost: alarms of all streams that can move one slice add up to at "
    "most the budget, each under the null that its clause holds, however streams depend on each other. "
    "An observation is one probe or one scrape. Thresholds are log-evidence in nats. A replica's streams "
    "share their budget with one stream over all slices; those of traffic are not guaranteed, because "
    "scrapes follow each other's queues."
)
COST_TEXT = "Over every scenario. Every policy has the same probe budget per replica."
GROUP_TEXT = {
    "silent_numeric": "HTTP 200 throughout: only the numbers are wrong. Mean, with 95 % limits below.",
    "silent_other": "Observability is lost or lies; answers are right unless another fault hides behind it.",
    "visible": "Crashes, stalls and errors, which request counters show as well.",
    "near_miss": "The numbers move and every clause still holds: every switch here is false.",
    "control": "Ordinary change without a fault: every switch here that is not for capacity is false.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CollapsibleSection:
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
    folds: tuple[CollapsibleSection, ...] = ()


def at_rest_section(broken: list[dict[str, Any]]) -> Section:
    """Clauses that home kernels break without a fault: before every number that they make meaningless."""
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
    message = f"{CONSEQUENCE[0].upper()}{CONSEQUENCE[1:]}."
    return Section(title="Broken at rest", text=(message,), tables=(Table(heads=heads, rows=rows),))
