"""What the certificates that ship say, on the page of the meta-contract.

``python -m scripts.train.certificate_page docs`` writes it anew after a certification.
"""

from __future__ import annotations

import sys
from pathlib import Path

from contracts.documents.artifact import Certificate, CertifiedClause, PolicyArtifact
from contracts.loading.loader import load_as
from contracts.loading.uris import resolve_uri
from contracts.regular_files import TEXT_BYTES, read_regular
from policies.registry import SHIPPED_ARTEFACT
from scripts.output import fill, table

PAGE, MARK = "meta-contract.md", "certificates"
BASELINE = "package:contracts/library/policies/hysteresis-certificate.json"


def certificate_table() -> list[str]:
    """Each clause of the shipped meta-contract on the baseline and on the learned policy."""
    baseline = Certificate.model_validate_json(read_regular(resolve_uri(BASELINE, PAGE), TEXT_BYTES))
    learned = load_as(PolicyArtifact, resolve_uri(SHIPPED_ARTEFACT, PAGE)).spec.certificate
    assert learned is not None  # the shipped artefact drives
    head = ("clause", "`hysteresis`", "95 % limit", "`learned`", "95 % limit", "within")
    by_id = {clause.id: clause for clause in learned.clauses}
    rows = [
        [f"`{one.id}`", *_measured(one), *_measured(by_id[one.id]), f"{one.threshold:g}"]
        for one in baseline.clauses
    ]
    episodes = [f"{sealed.episodes} episodes" for sealed in (baseline, learned)]
    rows.append(["of", episodes[0], "", episodes[1], "", ""])
    return table(head, rows, numbers=True)


def _measured(clause: CertifiedClause) -> list[str]:
    return ["–" if value is None else _figure(value) for value in (clause.value, clause.ci_high)]


def _figure(value: float) -> str:
    return f"{value:.3g}".replace("e-0", "e-")


if __name__ == "__main__":
    fill(Path(sys.argv[1] if len(sys.argv) > 1 else "docs") / PAGE, {MARK: certificate_table()})
