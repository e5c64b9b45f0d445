"""The episodes behind a certificate, in a file next to it; every clause can be judged again from them.

The certificate holds the file's hash. JSON, one object; an unknown number is null.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from contracts.documents import MetaContract
from contracts.documents.artifact import Certificate, CertifiedClause
from contracts.errors import DocumentError, refusal
from contracts.loading.files import json_text
from contracts.loading.untrusted import json_of
from contracts.regular_files import TEXT_BYTES, read_regular
from policies.certify.certificate import CertificationEvidence, EpisodeEvidence, ServiceShares, judge_clauses

EPISODES = TypeAdapter(tuple[EpisodeEvidence, ...])
SHARES = TypeAdapter(ServiceShares)
#: Upper limit of counts and times.
_MOST = 1e12
_TIMES = TypeAdapter(tuple[float, ...])


def evidence_file(certificate: Path) -> Path:
    """Path of the episodes for the certificate (or manifest) at ``certificate``."""
    return certificate.with_name(f"{certificate.stem}-episodes.json")


def evidence_text(evidence: CertificationEvidence) -> str:
    """``evidence`` as it is written; equal evidence gives equal text."""
    rows = {
        "incidents": [asdict(episode) for episode in evidence.incidents],
        "quiet": [asdict(episode) for episode in evidence.quiet],
        "decision_ms": evidence.decision_ms.tolist(),
        "still": [
            {"scenario": scenario, "seed": seed, "service": asdict(service)}
            for (scenario, seed), service in sorted(evidence.still.items())
        ],
    }
    return json_text(rows) + "\n"


def text_sha256(text: str) -> str:
    """Hash of the text, as the certificate holds it."""
    return hashlib.sha256(text.encode()).hexdigest()


def refuse_other_episodes(certificate: Certificate, meta: MetaContract, file: Path) -> None:
    """DocumentError unless ``file`` holds the episodes of ``certificate``, and its clauses follow
    from them.
    """
    content = read_regular(file, TEXT_BYTES)
    found = hashlib.sha256(content).hexdigest()
    if found != certificate.evidence_sha256:
        raise _refusal(file, f"sha256 {certificate.evidence_sha256}", f"sha256 {found}")
    again = judge_clauses(meta, parse_evidence(content, file), certificate.clauses)
    for expected, said in zip(again, certificate.clauses, strict=False):
        if not _same(expected, said):
            raise _refusal(file, f"{said.id} as these episodes give it, {expected}", f"{said}")
    if len(again) != len(certificate.clauses):
        raise _refusal(file, f"{len(again)} clauses", f"{len(certificate.clauses)}")


def _same(one: CertifiedClause, other: CertifiedClause) -> bool:
    """Whether two clauses are equal, up to the rounding differences of library versions."""
    numbers = ((one.value, other.value), (one.ci_high, other.ci_high))
    close = all(
        a == b or (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-9)) for a, b in numbers
    )
    plain = [
        (each.id, each.metric, each.judged_on, each.method, each.threshold, each.n, each.passed)
        for each in (one, other)
    ]
    return close and plain[0] == plain[1]


def parse_evidence(content: bytes, file: Path) -> CertificationEvidence:
    """The episodes that the ``content`` of ``file`` holds; DocumentError for anything else."""
    try:
        rows = json_of(content)
        found = CertificationEvidence(
            incidents=_episodes(rows["incidents"]),
            quiet=_episodes(rows["quiet"]),
            decision_ms=np.array(_TIMES.validate_python(rows["decision_ms"]), dtype=np.float64),
            still={
                (str(row["scenario"]), int(row["seed"])): SHARES.validate_python(row["service"])
                for row in rows["still"]
            },
        )
        _refuse_impossible(found)
        return found
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise _refusal(file, "episodes of a certification", f"{error}"[:200]) from None


def _refuse_impossible(evidence: CertificationEvidence) -> None:
    """ValueError for a count, exposure, share or time that is impossible."""
    times = evidence.decision_ms
    if not (np.isfinite(times).all() and (times >= 0.0).all() and (times < _MOST).all()):
        raise ValueError("decision_ms: expected times of at least 0")
    for episode in (*evidence.incidents, *evidence.quiet):
        plain = asdict(episode)
        incident, service = plain.pop("incident") or {}, plain.pop("service")
        _refuse_outside({**plain, **service}, 0.0)
        _refuse_outside({key: value for key, value in incident.items() if value == value}, -_MOST)
    for shares in evidence.still.values():
        _refuse_outside(asdict(shares), 0.0)


def _refuse_outside(numbers: dict[str, Any], least: float) -> None:
    for name, value in numbers.items():
        if isinstance(value, (int, float)) and not least <= value < _MOST:
            raise ValueError(f"{name}: expected a number from {least:g} to {_MOST:g}, got {value!r:.40}")


def _episodes(rows: Sequence[Any]) -> tuple[EpisodeEvidence, ...]:
    return EPISODES.validate_python([{**row, "incident": _known(row["incident"])} for row in rows])


def _known(incident: Any) -> Any:
    """``incident`` with NaN for unknown numbers; anything but an object is refused later."""
    if not isinstance(incident, dict):
        return incident
    return {name: math.nan if value is None else value for name, value in incident.items()}


def _refusal(file: Path, expected: str, actual: str) -> DocumentError:
    hint = "restore the file that was written with the certificate, or certify again"
    return refusal(file, expected, actual, hint, path="episodes")
