"""Admission of policies: checks that a certificate belongs to a policy; otherwise the policy is refused.

A certificate is bound to its subject by hashes: ``subject_sha256``, the meta-contract, the suites. This
detects accidents and careless edits, but not an attacker who issues a new certificate. Trust comes from the
place where the hash of the manifest is pinned (``RoutePolicy.spec.artifact.sha256``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from contracts.documents import MetaContract, PolicyArtifact, Suite
from contracts.documents.artifact import Certificate
from contracts.errors import DocumentError, refusal
from contracts.loading.files import canonical_sha256
from contracts.loading.loader import document_sha256, load_as
from contracts.loading.shipped import SHIPPED_META
from contracts.loading.uris import resolve_uri
from contracts.loading.yaml_positions import dotted
from contracts.rules.policy import certificate_breaches
from policies.certify.consistency import inconsistencies

#: The configuration of a network of this project, and of a network that another library trained on the
#: environment; both come as an artefact.
LEARNED: Final = "learned"
PLAIN: Final = "gym"
TRAINED = (LEARNED, PLAIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The subject of a trained policy's certificate: the weights, the encoding, the fixed rules, and the
    settings of its detector and of the controller.
    """

    onnx_sha256: str
    encoding_version: int
    rules_sha256: str

    @property
    def sha256(self) -> str:
        """The certificate's ``subject_sha256``."""
        return canonical_sha256({name: getattr(self, name) for name in self.__slots__})


def rules_sha256(rules: Mapping[str, float], configuration: Mapping[str, object]) -> str:
    """Hash of the fixed numbers that decide in addition to the weights, and of the configuration's settings
    (``configuration_facts``).
    """
    return canonical_sha256({"rules": dict(rules), "configuration": dict(configuration)})


def builtin_sha256(facts: Mapping[str, object]) -> str:
    """The subject of a built-in policy's certificate: its name and every setting, including the
    controller's.
    """
    return canonical_sha256(dict(facts))


_CERTIFY = (
    "selvage policy certify writes one (of a fleet of your own by --meta, which selvage policy suite writes),"
    " and selvage policy export --certificate puts it into the artefact; without one selvage policy evaluate"
    " runs it, and selvage policy route --mode observe lets it watch"
)


def load_certificate(text: str, file: str) -> Certificate:
    """The certificate in ``text`` (JSON as ``selvage policy certify`` writes it), passed or not.

    Raises DocumentError if the text is not a certificate.
    """
    try:
        return Certificate.model_validate_json(text)
    except ValueError as error:
        first = str(error).splitlines()[0]
        raise _refusal(file, "", "a certificate", first, "write it with `selvage policy certify`") from None


def refuse_unless_certified(
    manifest: PolicyArtifact,
    meta: MetaContract,
    subject: Subject,
    file: str = "manifest",
    meta_file: Path | str = "",
) -> None:
    """DocumentError unless the certificate of ``manifest`` passes and is about ``subject`` and ``meta``.

    meta_file: where ``meta`` was read from ("": the shipped one).
    """
    certificate = manifest.spec.certificate
    if certificate is None:
        raise _refusal(file, "", "a certificate", "none", _CERTIFY)
    if certificate.rules_sha256 != subject.rules_sha256:
        raise _refusal(
            file,
            "rules_sha256",
            f"{subject.rules_sha256}, of the rules and settings of this version",
            str(certificate.rules_sha256),
            "certify again: what decides beside the network is not the same",
        )
    if certificate.subject_sha256 != subject.sha256:
        raise _refusal(
            file,
            "subject_sha256",
            f"{subject.sha256}, of this ONNX file and encoding",
            certificate.subject_sha256,
            "this certificate is another policy's; certify this one",
        )
    refuse_unless_passing(certificate, meta, file, meta_file)


def refuse_unless_passing(
    certificate: Certificate, meta: MetaContract, file: str = "certificate", meta_file: Path | str = ""
) -> None:
    """DocumentError unless ``certificate`` passes every offline clause of the present ``meta`` on the suites
    that it names, and is consistent in itself.
    """
    for breach in certificate_breaches(certificate):
        raise _refusal(file, dotted(breach.path), breach.expected, breach.actual, breach.next_step)
    _refuse_missing(certificate, meta, file)
    found = document_sha256(meta)
    if certificate.meta_contract_sha256 != found:
        raise _refusal(
            file,
            "meta_contract_sha256",
            f"{found}, of {meta.metadata.name}",
            certificate.meta_contract_sha256,
            "certify again: the meta-contract is another one; or name its own with --meta",
        )
    if certificate.seeds < meta.spec.suite_seeds:
        least = f"at least {meta.spec.suite_seeds}"
        raise _refusal(file, "seeds", least, str(certificate.seeds), "certify with more seeds")
    _refuse_other_worlds(certificate, meta, file)
    _refuse_other_suites(certificate, meta, file, meta_file)
    for breach in inconsistencies(certificate):
        raise _refusal(file, dotted(breach.path), breach.expected, breach.actual, breach.next_step)
    _refuse_changed(certificate, meta, file)


def _refuse_other_worlds(certificate: Certificate, meta: MetaContract, file: str) -> None:
    """Require enough certified time without faults, and the worlds that the meta-contract pins."""
    asked = meta.spec.certification
    if asked is None:
        return
    if certificate.quiet_slice_days < asked.quiet_slice_days:
        least, days = f"at least {asked.quiet_slice_days:g}", f"{certificate.quiet_slice_days:g}"
        raise _refusal(file, "quiet_slice_days", least, days, "certify with --quiet-days left as it is")
    for name in ("worlds_sha256", "inputs_sha256"):
        pinned, found = getattr(asked, name), getattr(certificate, name)
        if pinned is not None and found != pinned:
            hint = "certify again: scenarios, pool, contract or profiles are others"
            raise _refusal(file, name, pinned, str(found), hint)


def _refuse_other_suites(
    certificate: Certificate, meta: MetaContract, file: str, meta_file: Path | str
) -> None:
    """Require that the certificate was judged on the present suites of ``meta``."""
    asked = meta.spec.certification
    if asked is None:
        return
    for name, uri in (("suite_sha256", asked.incidents), ("quiet_suite_sha256", asked.quiet)):
        place = resolve_uri(uri, meta_file or resolve_uri(SHIPPED_META, "selvage"))
        expected = _suite_sha256(place, place.stat().st_mtime_ns if place.is_file() else 0)
        found = getattr(certificate, name)
        if found != expected:
            hint = "certify again: the suite is another one"
            raise _refusal(file, name, f"{expected}, of {uri}", str(found), hint)


@lru_cache(maxsize=16)
def _suite_sha256(place: Path, stamp: int) -> str:
    del stamp  # part of the cache key only
    return document_sha256(load_as(Suite, place))


def _refuse_missing(certificate: Certificate, meta: MetaContract, file: str) -> None:
    """Require every offline clause in the certificate."""
    known = {clause.id for clause in certificate.clauses}
    for clause in meta.spec.clauses:
        if clause.checked != "online" and clause.id not in known:
            expected = f"{clause.metric} within {clause.threshold:g}"
            step = f"certify again: {meta.metadata.name} asks for this clause, and it was not judged"
            raise _refusal(file, f"clauses.{clause.id}", expected, "nothing", step)


def _refuse_changed(certificate: Certificate, meta: MetaContract, file: str) -> None:
    """Require that every offline clause was judged by its present metric and threshold."""
    known = {clause.id: clause for clause in certificate.clauses}
    for clause in meta.spec.clauses:
        if clause.checked == "online":
            continue
        found = known[clause.id]
        if found.metric != clause.metric or found.threshold != clause.threshold:
            actual = f"{found.metric} within {found.threshold:g}"
            expected = f"{clause.metric} within {clause.threshold:g}"
            raise _refusal(file, f"clauses.{clause.id}", expected, actual, "certify again")


def _refusal(file: str, path: str, expected: str, actual: str, next_step: str) -> DocumentError:
    place = f"certificate.{path}" if path else "certificate"
    return refusal(file, expected, actual, next_step, path=place)
