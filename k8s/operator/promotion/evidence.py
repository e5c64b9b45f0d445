"""Offline evidence of a promotion: an evaluation that is repeated here, or an entry of a register.

It is stored in a file, in the package or in a ConfigMap, and pinned by its SHA-256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from contracts.assess.evidence import Build, evidence_in
from contracts.assess.gate import GateOutcome
from contracts.assess.register import RegisterEntry, register_entries
from contracts.documents import FileRef, KernelPromotion
from contracts.errors import DocumentError, refusal
from contracts.loading.loader import document_sha256
from contracts.loading.oci import MissingArtefactError, OciUri
from contracts.loading.profiles import kernel_profile
from contracts.loading.uris import read_pinned
from contracts.regular_files import TEXT_BYTES
from controller.promotion.records import OfflineResult
from k8s.operator.admission import Documents
from k8s.operator.fleet import DATA_FOLDER
from k8s.operator.objects import Cluster, ClusterError

_CONFIG = "configmap:"
_ORIGIN = f"{DATA_FOLDER}/promotion.yaml"
_OUTCOMES = {
    "pass": GateOutcome.SUCCESSFUL,
    "fail": GateOutcome.FAILED,
    "inconclusive": GateOutcome.INCONCLUSIVE,
}


def offline_result(
    cluster: Cluster, document: KernelPromotion, documents: Documents, missing: Callable[[OciUri], None]
) -> OfflineResult:
    """Result of the evidence for the candidate; Error if it cannot be read or is about another build.

    ``missing`` is called with an artefact that must be fetched first.
    """
    try:
        return _result(cluster, document, documents)
    except MissingArtefactError as error:
        missing(error.uri)
        return OfflineResult(
            outcome=GateOutcome.ERROR, reason="ArtefactNotFetched", message=f"{error.uri} is being fetched"
        )
    except (DocumentError, ClusterError, OSError) as error:
        return OfflineResult(outcome=GateOutcome.ERROR, reason="EvidenceRefused", message=str(error)[:2000])


def _result(cluster: Cluster, document: KernelPromotion, documents: Documents) -> OfflineResult:
    offline = document.spec.offline
    build = _build(document, documents)
    if offline.evaluation is not None:
        content = _content(cluster, offline.evaluation)
        found = evidence_in(content, Path(offline.evaluation.uri), build)
        message = (
            f"the evaluation was made again from the samples of {build.profile.spec.kernel}: {found.verdict}"
        )
        return _said(_OUTCOMES[found.verdict], message, found.sha256)
    assert offline.register_file is not None  # a rule of the document
    content = _content(cluster, offline.register_file)
    entries = register_entries(content, Path(offline.register_file.uri))
    return _entry_result(entries, build, offline.checkpoint_sha256, offline.register_file)


def _said(outcome: GateOutcome, message: str, sha256: str) -> OfflineResult:
    return OfflineResult(
        outcome=outcome, reason=f"Evaluation{outcome}", message=message, evidence_sha256=sha256
    )


def _entry_result(
    entries: tuple[RegisterEntry, ...], build: Build, checkpoint: str | None, ref: FileRef
) -> OfflineResult:
    wanted = document_sha256(build.profile), document_sha256(build.contract)
    about = [
        one
        for one in entries
        if (one.kernel_sha256, one.contract_sha256) == wanted and checkpoint in (None, one.checkpoint_sha256)
    ]
    if not about:
        expected = f"an entry on profile {wanted[0]} and contract {wanted[1]}"
        hint = "selvage contract register add, with this profile and contract, and pin the new file"
        raise refusal(ref.uri, expected, f"none of {len(entries)}", hint)
    entry = about[-1]
    if entry.decision == "promoted" and entry.override_reason:
        message = f"entry {entry.sequence}: promoted by {entry.override_author}: {entry.override_reason}"
        return _said(GateOutcome.SUCCESSFUL, message, entry.entry_sha256)
    if entry.verdict == "pass" and entry.verdict_source != "evaluated":
        message = (
            f"entry {entry.sequence} claims a pass without an evaluation; enter the output of evaluate --json"
        )
        return _said(GateOutcome.INCONCLUSIVE, message, entry.entry_sha256)
    return _said(_OUTCOMES[entry.verdict], f"entry {entry.sequence}: {entry.verdict}", entry.entry_sha256)


def _build(document: KernelPromotion, documents: Documents) -> Build:
    (kernel,) = (one for one in documents.pool.spec.kernels if one.name == document.spec.candidate)
    profile, place = kernel_profile(kernel, _ORIGIN)
    return Build(profile=profile, profile_file=place, contract=documents.contract)


def _content(cluster: Cluster, ref: FileRef) -> bytes:
    """The content of ``ref``; DocumentError if it does not match the pinned SHA-256."""
    if not ref.uri.startswith(_CONFIG):
        return read_pinned(ref, _ORIGIN, TEXT_BYTES)
    name, _, key = ref.uri.removeprefix(_CONFIG).partition("/")
    config = cluster.read_config(name)
    text = None if config is None else (config.get("data") or {}).get(key)
    if text is None:
        actual = "no such ConfigMap" if config is None else "no such key"
        hint = f"kubectl create configmap {name} --from-file={key or 'KEY'}"
        raise refusal(ref.uri, "configmap:NAME/KEY", actual, hint)
    content = str(text).encode()
    if (found := hashlib.sha256(content).hexdigest()) != ref.sha256:
        hint = "pin what it holds now, or restore it"
        raise refusal(ref.uri, f"sha256 {ref.sha256}", f"sha256 {found}", hint)
    return content
