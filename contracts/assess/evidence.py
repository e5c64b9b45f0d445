"""The evidence of an entry or a promotion: an evaluation, repeated from samples and contract, or a claim."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from contracts.assess.evaluate import LEAST_OBSERVATIONS, evaluate
from contracts.assess.gate import Waiver
from contracts.assess.observations import ALL_SPLITS, from_samples
from contracts.assess.register import RecordedVerdict, VerdictSource
from contracts.assess.samples import load_samples
from contracts.documents import KernelContract, KernelProfile
from contracts.documents.profile import HEALTHY
from contracts.errors import DocumentError, Problem, refusal
from contracts.loading.loader import document_sha256
from contracts.loading.untrusted import json_object_of
from contracts.loading.uris import resolve_uri
from contracts.regular_files import TEXT_BYTES, read_regular
from contracts.units import CONFIDENCE

_HINT = "evaluate this profile against this contract and name that output"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcedVerdict:
    """A verdict, where it comes from, and the hash of the file that states it."""

    verdict: RecordedVerdict
    source: VerdictSource
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What is to be entered: a profile, where it lies, and the contract that it is judged by."""

    profile: KernelProfile
    profile_file: Path
    contract: KernelContract


def read_evidence(file: Path, build: Build, claimed: str) -> SourcedVerdict:
    """The evidence in ``file``: see ``evidence_in``."""
    return evidence_in(
        read_regular(file, TEXT_BYTES, "name the output of evaluate --json"), file, build, claimed
    )


def evidence_in(content: bytes, file: Path, build: Build, claimed: str = "") -> SourcedVerdict:
    """The evidence in ``content`` of ``file``: output of ``evaluate --json`` for ``build``, or anything with
    a ``claimed`` verdict.

    Raises DocumentError where an evaluation is about something else, was made on other terms than the
    contract's, or states a result that its samples do not give; a claim cannot overrule one.
    """
    sha256 = hashlib.sha256(content).hexdigest()
    found = json_object_of(content)
    if "verdict" not in found:
        if not claimed:
            hint = "name the output of evaluate --json, or say --verdict"
            raise refusal(file, "JSON with a verdict", "none", hint)
        return SourcedVerdict(verdict=_verdict(claimed, "--verdict"), source="claimed", sha256=sha256)
    _refuse_other_terms(found, build, file, claimed)
    verdict = _verdict(str(found["verdict"]), str(file))
    _refuse_other_result(found, build, file)
    return SourcedVerdict(verdict=verdict, source="evaluated", sha256=sha256)


def _verdict(text: str, where: str) -> RecordedVerdict:
    for verdict in get_args(RecordedVerdict):
        if verdict == text:
            known: RecordedVerdict = verdict
            return known
    expected = " or ".join(get_args(RecordedVerdict))
    raise refusal(where, expected, repr(text)[:80], "copy it from evaluate")


def _refuse_other_terms(found: dict[str, Any], build: Build, file: Path, claimed: str) -> None:
    """DocumentError unless the evaluation is about ``build``, on all prompts, healthy, and no less strict."""
    wanted = {
        "contract_sha256": document_sha256(build.contract),
        "samples_sha256": build.profile.spec.samples.sha256,
        "condition": HEALTHY,
        "split": ALL_SPLITS,
    } | ({"verdict": claimed} if claimed else {})
    problems = [
        Problem(str(file), 0, key, value, f"{found.get(key)!r:.80}", _HINT)
        for key, value in wanted.items()
        if found.get(key) != value
    ]
    for key, least, below in (
        ("confidence", CONFIDENCE, 1.0),
        ("least_observations", LEAST_OBSERVATIONS, 1e9),
    ):
        value = found.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < below:
            problems.append(Problem(str(file), 0, key, f"at least {least:g}", f"{value!r:.80}", _HINT))
    if problems:
        raise DocumentError(problems)


def _refuse_other_result(found: dict[str, Any], build: Build, file: Path) -> None:
    """DocumentError unless the samples give the verdict that the evaluation states."""
    pinned = build.profile.spec.samples
    samples = load_samples(resolve_uri(pinned.uri, build.profile_file), pinned.sha256)
    again = evaluate(
        build.contract,
        from_samples(samples, pinned.sha256, HEALTHY, ALL_SPLITS),
        confidence=float(found["confidence"]),
        least_observations=int(found["least_observations"]),
        waivers=_waivers(found, file),
    )
    if str(again.verdict) != found["verdict"]:
        actual = f"{found['verdict']!r:.40}"
        raise refusal(file, f"{again.verdict}, as the samples say", actual, _HINT, path="verdict")


def _waivers(found: dict[str, Any], file: Path) -> list[Waiver]:
    """The waivers of the evaluation, with their reasons; DocumentError where that is no list of waivers."""
    try:
        return [Waiver(**{key: str(row[key]) for key in _WAIVED}) for row in found.get("waivers") or ()]
    except (TypeError, KeyError) as error:
        actual = f"{error}"[:80]
        raise refusal(file, "a list of waivers", actual, _HINT, path="waivers") from None


_WAIVED = ("clause_id", "slice", "reason")
