"""A meta-contract that a reduced certificate can pass: few seeds, short incidents, loose clauses."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from scripts.train.own_suites import QUIET_S
from tests.support.documents.documents_written import write_yaml

#: Factor by which quiet hours pass faster than in a certificate's suites.
FASTER = 4.0
#: Clauses that two seeds cannot prove, and that an untrained network need not keep.
LOOSE = {
    "M-false-switches": 1e6,
    "M-demotions": 1.0,
    "M-switch-rate": 1000.0,
    "M-oscillation": 1000.0,
    "M-decision-latency": 1e4,
    "M-detection-lag": 1e4,
    "M-mttr": 1e4,
    "M-shed": 1.0,
    "M-never-empty": 1e6,
    "M-harm": 1.0,
    "M-harm-failed": 1.0,
}


def loosened(meta: Path) -> None:
    """Clauses that a reduced certificate can pass; shorter incidents, and quiet hours that pass four times as
    fast: every change is there, in its order and for its share of the time.
    """
    document: dict[str, Any] = yaml.safe_load(meta.read_text())
    for clause in document["spec"]["clauses"]:
        clause["threshold"] = LOOSE.get(clause["id"], clause["threshold"])
    del document["spec"]["certification"]["inputs_sha256"]
    write_yaml(meta, document)
    for name, horizon_s in (("incidents", 130.0), ("quiet", QUIET_S / FASTER)):
        base = meta.with_name(f"{name}-base.yaml")
        scenario: dict[str, Any] = yaml.safe_load(base.read_text())
        scenario["spec"]["horizon_s"] = horizon_s
        write_yaml(base, scenario)
        suite = meta.with_name(f"{name}.yaml")
        rows: dict[str, Any] = yaml.safe_load(suite.read_text())
        kept = rows["spec"]["scenarios"][:2]
        rows["spec"]["scenarios"] = [
            row | {"changes": [] if name == "incidents" else _faster(row.get("changes", ()))} for row in kept
        ]
        write_yaml(suite, rows)


def _faster(changes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """``changes`` of quiet hours that pass ``FASTER``; a server's start time is unchanged."""
    return [
        one | {name: one[name] / FASTER for name in ("at_s", "duration_s") if one.get(name) is not None}
        for one in changes
    ]
