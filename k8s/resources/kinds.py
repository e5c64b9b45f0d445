"""Which documents are cluster resources, how each is read and written, and its ``kubectl get`` columns.

An object of the API server is a document, read by the same loader as a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contracts.documents import (
    Document,
    FaultDrill,
    KernelContract,
    KernelPool,
    KernelPromotion,
    RoutePolicy,
)
from contracts.loading.files import json_text
from contracts.loading.loader import canonical_json, load_text

#: Group and version of every resource; together they are ``API_VERSION``.
GROUP, VERSION = "selvage.dev", "v1alpha1"
#: ``kubectl get selvage`` lists every kind.
CATEGORY = "selvage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of ``kubectl get``."""

    name: str
    path: str
    """JSONPath of a single value in the resource; of a list, kubectl would show only the first item."""
    type: str = "string"
    """``string``, ``integer``, ``number`` or ``date``."""
    wide: bool = False
    """Shown with ``-o wide`` only."""

    def as_json(self) -> dict[str, object]:
        """The column as an entry of a CustomResourceDefinition."""
        found: dict[str, object] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return {**found, "priority": 1} if self.wide else found


def condition_column(kind: str) -> Column:
    """A column with the status of condition ``kind``."""
    return Column(name=kind, path=f'.status.conditions[?(@.type=="{kind}")].status')


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceKind:
    """How one document is named in a cluster."""

    model: type[Document]
    plural: str
    shorts: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def name(self) -> str:
        """Kind, as in documents."""
        return self.model.__name__

    @property
    def crd_name(self) -> str:
        """Name of the CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"


_AGE = Column(name="Age", path=".metadata.creationTimestamp", type="date")

RESOURCES: tuple[ResourceKind, ...] = (
    ResourceKind(
        model=KernelContract,
        plural="kernelcontracts",
        shorts=("kc",),
        columns=(
            condition_column("Accepted"),
            Column(name="Uncertified", path=".spec.escalation.when_uncertified", wide=True),
            _AGE,
        ),
    ),
    ResourceKind(
        model=KernelPool,
        plural="kernelpools",
        shorts=("kpool", "kp"),
        columns=(
            condition_column("Ready"),
            Column(name="Weights", path=".status.weights"),
            Column(name="Worst", path=".status.worstKernel"),
            Column(name="Health", path=".status.worstHealth", type="number"),
            Column(name="Clause", path=".status.worstClause"),
            _AGE,
        ),
    ),
    ResourceKind(
        model=RoutePolicy,
        plural="routepolicies",
        shorts=("rpol",),
        columns=(
            Column(name="Mode", path=".spec.mode"),
            Column(name="Driving", path=".status.driving"),
            condition_column("Ready"),
            condition_column("Degraded"),
            Column(name="Kernels", path=".status.kernels", wide=True),
            Column(name="Weights", path=".status.weights", wide=True),
            _AGE,
        ),
    ),
    ResourceKind(
        model=FaultDrill,
        plural="faultdrills",
        shorts=("drill",),
        columns=(
            Column(name="Pool", path=".spec.pool"),
            Column(name="Phase", path=".status.phase"),
            Column(name="Verdict", path=".status.verdict"),
            _AGE,
        ),
    ),
    ResourceKind(
        model=KernelPromotion,
        plural="kernelpromotions",
        shorts=("kprom",),
        columns=(
            Column(name="Candidate", path=".spec.candidate"),
            Column(name="Stage", path=".status.stage"),
            Column(name="Most", path=".status.mostWeight", type="number"),
            Column(name="Verdict", path=".status.verdict"),
            Column(name="Reason", path=".status.reason"),
            condition_column("Degraded"),
            Column(name="Compliant", path=".status.compliantSeconds", type="number", wide=True),
            Column(name="Subject", path=".status.subject", wide=True),
            _AGE,
        ),
    ),
)


_BY_NAME = {found.name: found for found in RESOURCES}


def resource_named(kind: str) -> ResourceKind:
    """The resource of document ``kind``; KeyError, which lists the kinds, if it exists as a file only."""
    if kind not in _BY_NAME:
        raise KeyError(f"{kind} is no cluster resource; these are: {', '.join(sorted(_BY_NAME))}")
    return _BY_NAME[kind]


#: Metadata of an object that belong to the document; the server sets the others.
_METADATA = ("name", "namespace", "labels", "annotations")
#: Annotation that ``kubectl apply`` writes for its own use.
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def document_of(found: Mapping[str, Any]) -> Document:
    """The document in an object from the API server; ``DocumentError`` if it breaks rules.

    Messages name the object instead of a file.
    """
    return load_text(json_text(written(found)), origin(found))


def written(found: Mapping[str, Any]) -> dict[str, Any]:
    """The document in an object as its author wrote it: kind, spec, names, labels and annotations."""
    metadata = {key: found["metadata"][key] for key in _METADATA if key in found["metadata"]}
    annotations = dict(metadata.get("annotations", {}))
    annotations.pop(_LAST_APPLIED, None)
    metadata["annotations"] = annotations
    kept = {key: found[key] for key in ("apiVersion", "kind", "spec") if key in found}
    return {**kept, "metadata": metadata}


def object_of(document: Document, namespace: str | None = None) -> dict[str, Any]:
    """``document`` as an object to create, in ``namespace`` unless it names one itself."""
    found: dict[str, Any] = json.loads(canonical_json(document))
    metadata = {key: value for key, value in found["metadata"].items() if value}
    if namespace is not None:
        metadata.setdefault("namespace", namespace)
    return {**found, "metadata": metadata}


def origin(found: Mapping[str, Any]) -> str:
    """Name of an object in messages: ``KernelPool chat/e5-pool``."""
    metadata = found["metadata"]
    place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{found['kind']} {place}{metadata['name']}"
