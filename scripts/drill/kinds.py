"""What ``selvage drill kinds`` shows of the fault catalogue, the kinds of plug-ins included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from contracts.errors import refusal
from faults.catalogue import CATALOGUE, FaultKind

#: Rows of one kind in full, and their names.
FIELDS = {
    "dose": "dose",
    "default_dose": "default dose",
    "effect": "acts on",
    "clients_see": "clients see",
    "live_injection": "live server",
    "kubernetes_form": "Kubernetes",
    "verification": "proof",
    "undo": "undo",
}


def fault_rows(name: str = "") -> list[dict[str, Any]]:
    """All kinds, or ``name`` alone, as the fields of one row each; DocumentError for an unknown name."""
    known = CATALOGUE.known()
    if name and name not in known:
        raise refusal("NAME", "a kind of fault", repr(name), f"one of {', '.join(known)}")
    return [_row(CATALOGUE[one]) for one in ([name] if name else known)]


def _row(kind: FaultKind) -> dict[str, Any]:
    dose = kind.dose
    return {
        "name": kind.name,
        "dose": f"{dose.quantity}, {dose.lowest:g} to {dose.highest:g}; {dose.neutral:g} changes nothing",
        "default_dose": dose.default,
        "effect": kind.channel.name.lower(),
        "clients_see": "answers in time with status 200"
        if kind.silent
        else "failed, late or missing answers",
        "live_injection": kind.live_injection,
        "kubernetes_form": kind.kubernetes_form,
        "verification": kind.verification,
        "undo": kind.undo,
    }


def lines_of(rows: Sequence[dict[str, Any]], *, whole: bool) -> Iterator[str]:
    """Lines to print: one per kind, or with ``whole`` one per field."""
    for row in rows:
        if not whole:
            yield f"{row['name']:<21} {row['live_injection']:<25} {row['verification']}"
            continue
        yield row["name"]
        yield from (f"  {label:<13} {row[field]}" for field, label in FIELDS.items())
