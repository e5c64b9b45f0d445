"""Artefacts on disk: an ONNX file and its manifest, written atomically and loaded only if everything fits.

Refused are an ONNX file with another hash than the manifest's, another encoding version, and a missing or
failing certificate. Refused as well is a certificate for another network, other fixed rules, another
configuration or another meta-contract than the manifest's. No pickle is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from contracts.documents import FileRef, MetaContract, Metadata, PolicyArtifact
from contracts.documents.artifact import ArtifactSpec, Certificate, RecurrentState, Training
from contracts.errors import refusal
from contracts.loading.files import write_pinned
from contracts.loading.loader import document_sha256, dump_text, load_as
from contracts.loading.shipped import SHIPPED_ARTEFACT, SHIPPED_META
from contracts.loading.uris import read_pinned, resolve_uri
from contracts.regular_files import ONNX_BYTES
from controller.encoding.features import ENCODING_VERSION
from controller.fleet import FleetSetup
from policies.certify.admission import LEARNED, PLAIN, Subject, refuse_unless_certified, rules_sha256
from policies.learned.choosing import fixed_rules
from policies.learned.plain import PlainPolicy, plain_policy
from policies.learned.runner import LearnedPolicy, learned_policy

#: Configuration name -> the facts that decide in it (``policies.registry.configuration_facts``).
FactsOf = Callable[[str], Mapping[str, object]]


def network_subject(
    onnx_sha256: str,
    facts_of: FactsOf,
    configuration: str = LEARNED,
    encoding_version: int = ENCODING_VERSION,
) -> Subject:
    """The subject of a certificate for that network, with the rules and settings of this version."""
    fixed = fixed_rules() if configuration == LEARNED else {}
    rules = rules_sha256(fixed, facts_of(configuration))
    return Subject(onnx_sha256=onnx_sha256, encoding_version=encoding_version, rules_sha256=rules)


def drives_as(manifest: PolicyArtifact) -> str:
    """The configuration that runs the network of ``manifest``."""
    return manifest.spec.configuration or LEARNED


@dataclass(frozen=True, slots=True, kw_only=True)
class Artefact:
    """A loaded artefact: manifest, its path, and the content of its ONNX file, with a verified hash."""

    manifest: PolicyArtifact
    file: Path
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsAs:
    """How a network is run, if not as a learned policy without memory."""

    configuration: Literal["gym"] | None = None
    recurrent: RecurrentState | None = None


def write_artefact(
    folder: Path,
    name: str,
    content: bytes,
    description: str,
    training: Training,
    certificate: Certificate | None = None,
    runs_as: RunsAs | None = None,
) -> Path:
    """Write ``name.onnx`` and ``name.yaml`` into ``folder``; returns the manifest's path.

    runs_as: how the network is run; None: as the learned policy, without memory.

    Equal arguments give equal bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    onnx = FileRef(uri=f"{name}.onnx", sha256=write_pinned(folder / f"{name}.onnx", content))
    manifest = PolicyArtifact(
        metadata=Metadata(name=name),
        spec=ArtifactSpec(
            description=description,
            onnx=onnx,
            encoding_version=ENCODING_VERSION,
            configuration=None if runs_as is None else runs_as.configuration,
            recurrent=None if runs_as is None else runs_as.recurrent,
            training=training,
            certificate=certificate,
        ),
    )
    path = folder / f"{name}.yaml"
    write_pinned(path, dump_text(manifest).encode())
    return path


def with_certificate(artefact: Artefact, certificate: Certificate, facts_of: FactsOf) -> PolicyArtifact:
    """The manifest with ``certificate``; refused unless it passes and is about this network."""
    spec = artefact.manifest.spec.model_copy(update={"certificate": certificate})
    manifest = artefact.manifest.model_copy(update={"spec": spec})
    meta, place = named_meta(manifest, artefact.file)
    refuse_unless_certified(manifest, meta, manifest_subject(manifest, facts_of), str(artefact.file), place)
    return manifest


def load_artefact(uri: str, facts_of: FactsOf | None) -> Artefact:
    """The artefact with the manifest at ``uri`` (a path or ``package:``).

    facts_of: facts that its certificate must fit. None: no certificate is required; for evaluation and
    certification only, not for driving. Raises DocumentError for any mismatch; see the module.
    """
    file = resolve_uri(uri, "")
    manifest = load_as(PolicyArtifact, file)
    content = read_pinned(manifest.spec.onnx, file, ONNX_BYTES)
    if manifest.spec.encoding_version != ENCODING_VERSION:
        raise refusal(
            file,
            f"{ENCODING_VERSION}",
            f"{manifest.spec.encoding_version}",
            "train the policy again with this version",
            path="spec.encoding_version",
        )
    if facts_of is not None:
        meta, place = named_meta(manifest, file)
        refuse_unless_certified(manifest, meta, manifest_subject(manifest, facts_of), str(file), place)
    return Artefact(manifest=manifest, file=file, content=content)


def manifest_subject(manifest: PolicyArtifact, facts_of: FactsOf) -> Subject:
    """``network_subject`` of the network that ``manifest`` names."""
    spec = manifest.spec
    return network_subject(spec.onnx.sha256, facts_of, drives_as(manifest), spec.encoding_version)


def named_meta(manifest: PolicyArtifact, file: Path | str) -> tuple[MetaContract, Path]:
    """The meta-contract that ``manifest`` (read from ``file``) names, else the shipped one; and its path."""
    place = resolve_uri(manifest.spec.meta_contract or SHIPPED_META, file)
    return load_as(MetaContract, place), place


def refuse_other_meta(manifest: PolicyArtifact, file: Path, meta: MetaContract, asked: str) -> None:
    """DocumentError if ``manifest`` (read from ``file``) belongs to another meta-contract than ``meta``.

    ``meta`` is that of the URI ``asked``. An artefact without a meta-contract and without a certificate fits
    any.
    """
    spec = manifest.spec
    if spec.certificate is not None:
        path, found = "spec.certificate.meta_contract_sha256", spec.certificate.meta_contract_sha256
    elif spec.meta_contract is not None:
        path, found = "spec.meta_contract", document_sha256(named_meta(manifest, file)[0])
    else:
        return
    expected = document_sha256(meta)
    if found == expected:
        return
    actual = f"{found}, of {spec.meta_contract or 'the shipped one'}"
    certify = f"selvage policy certify {drives_as(manifest)}:onnx=FILE --meta {asked}"
    hint = f"leave --meta out, or certify under it: {certify}"
    raise refusal(file, f"{expected}, of --meta {asked}", actual, hint, path=path)


def load_learned(
    uri: str, fleet: FleetSetup, facts_of: FactsOf | None, policy_id: str = LEARNED
) -> LearnedPolicy:
    """The policy of the artefact ``uri`` for ``fleet``; for refusals see ``load_artefact``."""
    artefact = load_artefact(uri or SHIPPED_ARTEFACT, facts_of)
    _refuse_other_configuration(artefact, LEARNED)
    policy = learned_policy(artefact.content, fleet, policy_id, str(artefact.file))
    _refuse_other_memory(artefact, policy.runner.memory)
    return policy


def load_plain(uri: str, fleet: FleetSetup, facts_of: FactsOf | None, policy_id: str = PLAIN) -> PlainPolicy:
    """The same for a network that another library trained."""
    artefact = load_artefact(uri, facts_of)
    _refuse_other_configuration(artefact, PLAIN)
    return plain_policy(artefact.content, fleet, policy_id, str(artefact.file))


def _refuse_other_configuration(artefact: Artefact, expected: str) -> None:
    """DocumentError if the artefact's network belongs to another policy than ``expected``."""
    found = drives_as(artefact.manifest)
    if found != expected:
        raise refusal(artefact.file, expected, found, f"name the policy {found}", path="spec.configuration")


def _refuse_other_memory(artefact: Artefact, found: dict[str, int]) -> None:
    """DocumentError if the network's memory differs from the manifest."""
    said = artefact.manifest.spec.recurrent
    expected = {} if said is None else said.model_dump()
    if expected != found:
        hint = "export it again with this version"
        raise refusal(artefact.file, f"{expected}", f"{found}", hint, path="spec.recurrent")
