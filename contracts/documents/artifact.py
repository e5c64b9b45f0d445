"""``PolicyArtifact``: manifest of a trained policy with the certificate of its meta-contract suite."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contracts.documents.envelope import (
    Count,
    Document,
    FileRef,
    Name,
    NonNegative,
    PositiveCount,
    Sha256,
    Strict,
    Text,
)
from contracts.documents.profile import Version


class Training(Strict):
    """How the policy was trained."""

    command: Text
    seeds: Annotated[tuple[Count, ...], Field(min_length=1, max_length=64)]
    versions: Annotated[tuple[Version, ...], Field(max_length=64)] = ()


class CertifiedClause(Strict):
    """Outcome of one meta-clause on the suite."""

    id: Name
    value: NonNegative
    ci_high: NonNegative
    passed: bool


class Certificate(Strict):
    """The suite's verdict; an artefact without a passing one is refused."""

    suite_sha256: Sha256
    meta_contract_sha256: Sha256
    seeds: PositiveCount
    passed: bool
    clauses: Annotated[tuple[CertifiedClause, ...], Field(min_length=1, max_length=64)]


class ArtifactSpec(Strict):
    """One trained policy."""

    description: Text
    onnx: FileRef
    encoding_version: PositiveCount
    """Version of the observation and action encoding."""
    training: Training
    certificate: Certificate


class PolicyArtifact(Document):
    """A trained policy."""

    kind: Literal["PolicyArtifact"] = "PolicyArtifact"
    spec: ArtifactSpec
