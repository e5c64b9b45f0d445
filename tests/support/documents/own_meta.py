"""An own meta-contract that differs from the shipped one in its limits on a policy."""

from __future__ import annotations

from pathlib import Path

import yaml

from contracts.loading.shipped import SHIPPED_META
from contracts.loading.uris import resolve_uri
from tests.support.documents.documents_written import write_yaml

#: The largest part of a row that moves in one tick; 0.25 in the shipped one.
MOVE_RATIO = 0.05


def write_own_meta(folder: Path, name: str = "own-meta", move_ratio: float = MOVE_RATIO) -> Path:
    """The shipped meta-contract with smaller moves, and the known-good kernel as the baseline, which needs no
    certificate.
    """
    folder.mkdir(parents=True, exist_ok=True)
    document = yaml.safe_load(resolve_uri(SHIPPED_META, "").read_text())
    document["metadata"]["name"] = name
    document["spec"]["baseline"] = "fixed_known_good"
    del document["spec"]["certification"]
    for clause in document["spec"]["clauses"]:
        if clause["metric"] == "weight_move_per_tick":
            clause["threshold"] = move_ratio
    return write_yaml(folder / f"{name}.yaml", document)
