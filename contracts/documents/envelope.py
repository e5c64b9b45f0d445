"""What every document shares: strict frozen models, the Kubernetes-style envelope, common field types.

Models fit Kubernetes structural schemas: no unions (one optional block per variant), no maps below
``spec`` (named lists), no references. Numbers are strict (no text, no booleans) and finite. Python
sequences are tuples, so that a document is immutable; in YAML and JSON they are plain arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

API_VERSION: Final = "selvage.dev/v1alpha1"

#: Largest integer that survives a JSON number in every reader (Kubernetes: format int64).
INT64_MAX = 2**63 - 1

DnsName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=253)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$", max_length=63)]
MetricName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=63)]
Text = Annotated[str, Field(min_length=1, max_length=4000)]
Uri = Annotated[str, Field(min_length=1, max_length=1000)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Positive = Annotated[float, Field(gt=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Ratio = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=0, le=INT64_MAX)]
PositiveCount = Annotated[int, Field(ge=1, le=INT64_MAX)]


class Strict(BaseModel):
    """A frozen record that refuses unknown keys, coerced types, NaN and infinity."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        populate_by_name=True,
        serialize_by_alias=True,
        protected_namespaces=(),
        use_attribute_docstrings=True,
        defer_build=True,  # a command reads one or two of the imported kinds
    )


class Label(Strict):
    """One label or annotation: a map entry in YAML, a record here."""

    key: Annotated[str, Field(min_length=1, max_length=317)]
    """Name of the label or annotation."""
    value: Annotated[str, Field(max_length=4096)]
    """Value of the label or annotation."""


def _records_from_map(given: object) -> object:
    """Records in key order from a map of labels; any other value unchanged, for the field to validate."""
    if not isinstance(given, Mapping):
        return given
    return tuple({"key": key, "value": given[key]} for key in sorted(given, key=str))


def _map_from_records(labels: tuple[Label, ...]) -> dict[str, str]:
    """The map form of ``labels``, as in YAML."""
    return {label.key: label.value for label in labels}


Labels = Annotated[
    tuple[Label, ...],
    BeforeValidator(_records_from_map),
    PlainSerializer(_map_from_records, return_type=dict[str, str]),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}}),
]


class Metadata(Strict):
    """The Kubernetes metadata that documents use."""

    name: DnsName
    namespace: DnsName | None = None
    labels: Labels = ()
    annotations: Labels = ()


class FileRef(Strict):
    """A file outside the document, pinned by its content."""

    uri: Uri
    """Location of the file: a path, relative to the document or absolute, or a ``package:`` URI of shipped
    data."""
    sha256: Sha256
    """SHA-256 of the file's bytes, 64 hexadecimal digits."""


class Document(Strict):
    """The envelope of every document. Subclasses fix ``kind`` and give ``spec`` its type."""

    api_version: Literal["selvage.dev/v1alpha1"] = Field(default=API_VERSION, alias="apiVersion")
    kind: str
    metadata: Metadata
