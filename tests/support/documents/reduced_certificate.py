"""A meta-contract that a reduced certificate can pass: few seeds, short incidents, loose clauses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.support.documents.documents_written import write_yaml

#: What two seeds cannot show, and an untrained network need not.
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
    """Clauses that a reduced certificate can pass; shorter incidents, so that the walk takes a minute."""
    document: dict[str, Any] = yaml.safe_load(meta.read_text())
    for clause in document["spec"]["clauses"]:
        clause["threshold"] = LOOSE.get(clause["id"], clause["threshold"])
    del document["spec"]["certification"]["inputs_sha256"]
    write_yaml(meta, document)
    for name, horizon_s in (("incidents", 130.0), ("quiet", 7200.0)):
        base = meta.with_name(f"{name}-base.yaml")
        scenario: dict[str, Any] = yaml.safe_load(base.read_text())
        scenario["spec"]["horizon_s"] = horizon_s
        write_yaml(base, scenario)
        suite = meta.with_name(f"{name}.yaml")
        rows: dict[str, Any] = yaml.safe_load(suite.read_text())
        rows["spec"]["scenarios"] = [
            row | ({"changes": []} if name == "incidents" else {}) for row in rows["spec"]["scenarios"][:2]
        ]
        write_yaml(suite, rows)
