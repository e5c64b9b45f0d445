"""Records of certificates: drawn from their suites again, and shown on the pages about them.

``python -m scripts.train.certificates docs`` writes the shipped ones' tables anew after a certification.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

from contracts.documents.artifact import Certificate, CertifiedClause, PolicyArtifact
from contracts.errors import DocumentError, refusal
from contracts.loading.loader import load_as
from contracts.loading.shipped import LIVE_ARTEFACT, SHIPPED_ARTEFACT
from contracts.loading.uris import resolve_uri
from contracts.regular_files import TEXT_BYTES, read_regular
from scripts.output import fill, table
from scripts.train.certify import CertificationRequest, covers, inputs_sha256, plan_certification

PAGE, MARK = "meta-contract.md", "certificates"
#: Certificates of the fleet of live drills.
LIVE_PAGE, LIVE_MARK = "training.md", "live-certificates"
_BASELINE = "hysteresis-certificate.json"


def certificate_table(artefact: str = SHIPPED_ARTEFACT) -> list[str]:
    """Each clause of a shipped meta-contract on the baseline and on the learned policy, whose manifest is
    ``artefact``.
    """
    place = resolve_uri(artefact, PAGE)
    baseline = Certificate.model_validate_json(read_regular(place.with_name(_BASELINE), TEXT_BYTES))
    learned = load_as(PolicyArtifact, place).spec.certificate
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
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs")
    fill(folder / PAGE, {MARK: certificate_table()})
    fill(folder / LIVE_PAGE, {LIVE_MARK: certificate_table(LIVE_ARTEFACT)})


#: Measured facts are fitted: last digits differ between machines, not between fleets.
_RELATIVE = 1e-9


def refuse_other_worlds(found: Certificate, meta_file: Path, file: Path) -> None:
    """DocumentError unless the suites of ``meta_file`` lead to the inputs, and span the ranges, in ``found``.
    Facts that it does not record are not compared.

    file: path of ``found``.
    """
    asked = CertificationRequest(
        spec="fixed-bare", subject="", subject_sha256="0" * 64, command="", meta_uri=str(meta_file), seeds=1
    )
    plan = plan_certification(asked)
    if found.inputs_sha256 is not None and found.inputs_sha256 != (now := inputs_sha256(plan)):
        hint = "certify again: a pool, a trace or a plug-in is another one"
        raise _refusal(file, "inputs_sha256", f"{now}, of its suites", found.inputs_sha256, hint)
    drawn = {one.name: (one.low, one.high) for one in covers(plan)}
    for one in found.covers or ():
        low, high = drawn.get(one.name, (math.nan, math.nan))
        if not (_same(low, one.low) and _same(high, one.high)):
            message = f"{low:g} to {high:g}, as its suites draw it"
            hint = "certify again; a certificate is not edited"
            raise _refusal(file, f"covers.{one.name}", message, f"{one.low:g} to {one.high:g}", hint)


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_RELATIVE, abs_tol=1e-15)


def _refusal(file: Path, path: str, expected: str, actual: str, hint: str) -> DocumentError:
    return refusal(file, expected, actual, hint, path=f"certificate.{path}")
