"""What a certificate records of its suites, drawn from them again."""

from __future__ import annotations

import math
from pathlib import Path

from contracts.documents.artifact import Certificate
from contracts.errors import DocumentError, Problem
from scripts.train.certify import CertificationRequest, covers, inputs_sha256, plan_certification

#: Measured facts are fitted: another machine's last digits are not another fleet.
_RELATIVE = 1e-9


def refuse_other_worlds(found: Certificate, meta_file: Path, file: Path) -> None:
    """DocumentError unless the suites of ``meta_file`` lead to the inputs, and span the ranges that ``found``
    records. What it does not record is not asked.

    file: where ``found`` was read.
    """
    asked = CertificationRequest(
        spec="fixed-bare", subject="", subject_sha256="0" * 64, command="", meta_uri=str(meta_file), seeds=1
    )
    plan = plan_certification(asked)
    if found.inputs_sha256 is not None and found.inputs_sha256 != (now := inputs_sha256(plan)):
        hint = "certify again: a pool, a trace or a plug-in is another one"
        raise _refused(file, "inputs_sha256", f"{now}, of its suites", found.inputs_sha256, hint)
    drawn = {one.name: (one.low, one.high) for one in covers(plan)}
    for one in found.covers or ():
        low, high = drawn.get(one.name, (math.nan, math.nan))
        if not (_same(low, one.low) and _same(high, one.high)):
            told = f"{low:g} to {high:g}, as its suites draw it"
            hint = "certify again; a certificate is not edited"
            raise _refused(file, f"covers.{one.name}", told, f"{one.low:g} to {one.high:g}", hint)


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_RELATIVE, abs_tol=1e-15)


def _refused(file: Path, path: str, expected: str, actual: str, hint: str) -> DocumentError:
    return DocumentError([Problem(str(file), 0, f"certificate.{path}", expected, actual, hint)])
