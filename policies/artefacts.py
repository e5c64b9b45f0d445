"""Artefacts and certificates, checked against this version's settings; called by commands and worlds.

``policies.certify`` takes the settings as arguments; here they come from the registry.
"""

from __future__ import annotations

from contracts.documents import PolicyArtifact
from contracts.documents.artifact import Certificate
from controller.encoding.features import ENCODING_VERSION
from controller.fleet import FleetSetup
from policies.certify import admission, artifact_files
from policies.certify.admission import LEARNED, Subject
from policies.certify.artifact_files import Artefact
from policies.learned.runner import LearnedPolicy
from policies.registry import configuration_facts, files_of


def network_subject(
    onnx_sha256: str, configuration: str = LEARNED, encoding_version: int = ENCODING_VERSION
) -> Subject:
    """The subject of a certificate for that network in that configuration, under this version's settings."""
    return artifact_files.network_subject(onnx_sha256, configuration_facts, configuration, encoding_version)


def manifest_subject(manifest: PolicyArtifact) -> Subject:
    """``network_subject`` of the network that ``manifest`` names."""
    return artifact_files.manifest_subject(manifest, configuration_facts)


def with_certificate(artefact: Artefact, found: Certificate) -> PolicyArtifact:
    """The manifest with the certificate ``found``; refused unless it passes and is about this network."""
    return artifact_files.with_certificate(artefact, found, configuration_facts)


def load_artefact(uri: str, *, allow_uncertified: bool = False) -> Artefact:
    """The artefact with the manifest at ``uri``; ``allow_uncertified``: not for driving.

    Raises DocumentError for any mismatch.
    """
    return artifact_files.load_artefact(uri, None if allow_uncertified else configuration_facts)


def load_learned(uri: str, fleet: FleetSetup, *, allow_uncertified: bool = False) -> LearnedPolicy:
    """The policy of the artefact ``uri`` ("": the shipped one) for ``fleet``."""
    return artifact_files.load_learned(uri, fleet, None if allow_uncertified else configuration_facts)


def builtin_sha256(spec: str) -> str:
    """The subject of a certificate for the policy ``spec``, except ``learned``: all settings, and the content
    of the files that it names. ValueError for an unknown name.
    """
    files = files_of(spec)
    return admission.builtin_sha256(configuration_facts(spec) | ({"files": files} if files else {}))
