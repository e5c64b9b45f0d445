"""The split of the false-switch budget as the report shows it: a line, and a table of streams."""

from __future__ import annotations

from typing import Any

from scripts.e5.report.tables import Table, TableCell

HEADS = (
    "clause",
    "streams of",
    "slices",
    "streams per slice",
    "observations per s",
    "alarms per month and stream",
    "ARL0, observations",
    "threshold, nats",
    "guaranteed",
)


def budget_text(split: dict[str, Any]) -> str:
    """One split in a line: the budget, its parts for alarms and for flags of a change, immediate alarms."""
    flags = split["flags"]
    changed = (
        f" {flags['per_slice_month']:.2g} for {flags['streams']} flags of a changed replica "
        f"(ARL0 {flags['arl0']:.2g}, threshold {flags['threshold']:.1f})"
        f"{'' if flags['switch'] else ', which move nothing'};"
        if flags
        else ""
    )
    return (
        f"{split['per_slice_month']:g} per slice-month; {split['alarms']:.3g} for alarms of the streams that "
        f"can move a slice (used: {split['alarms_per_slice_month']:.3g});{changed} "
        f"at once: {', '.join(split['at_once']) or 'none'}"
    )


def budget_table(split: dict[str, Any]) -> Table:
    """One row per clause and kind of stream; slices with equal lines share it."""
    rows: dict[tuple[object, ...], list[str]] = {}
    for line in split["lines"]:
        shown = tuple(line[name] for name in _SHOWN)
        rows.setdefault(shown, []).append(line["slice"])
    return Table(heads=HEADS, rows=tuple(_row(dict(zip(_SHOWN, k, strict=True)), v) for k, v in rows.items()))


_SHOWN = (
    "clause",
    "unit",
    "streams",
    "samples_per_s",
    "alarms_per_month",
    "arl0",
    "threshold",
    "threshold_over_slices",
    "guaranteed",
)


def _row(line: dict[str, Any], slices: list[str]) -> tuple[TableCell, ...]:
    whole = line["threshold_over_slices"]
    note = "" if whole is None else f"{whole:.1f} over all slices"
    threshold = "not watched" if line["threshold"] is None else f"{line['threshold']:.1f}"
    return (
        TableCell(text=line["clause"]),
        TableCell(text=line["unit"]),
        TableCell(text=", ".join(slices)),
        TableCell(text=str(line["streams"])),
        TableCell(text=f"{line['samples_per_s']:.3g}"),
        TableCell(text=f"{line['alarms_per_month']:.2g}"),
        TableCell(text="none" if line["arl0"] is None else f"{line['arl0']:.2g}"),
        TableCell(text=threshold, note=note),
        TableCell(text="yes" if line["guaranteed"] else "no"),
    )
