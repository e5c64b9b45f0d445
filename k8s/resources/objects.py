"""Objects of the API server and documents: the same thing, read by the same loader."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from contracts.documents import Document
from contracts.loading.files import json_text
from contracts.loading.loader import canonical_json, load_text

#: What a document keeps of an object's metadata; the rest is the server's.
_METADATA = ("name", "namespace", "labels", "annotations")
#: Written by ``kubectl apply`` for itself.
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def document_of(found: Mapping[str, Any]) -> Document:
    """The document in an object as the API server returns it; ``DocumentError`` where rules are broken.

    Messages name the object where a file's would name the file.
    """
    return load_text(json_text(written(found)), origin(found))


def written(found: Mapping[str, Any]) -> dict[str, Any]:
    """What of an object is the document, as its author wrote it: equal where nothing of it changed."""
    metadata = {key: found["metadata"][key] for key in _METADATA if key in found["metadata"]}
    annotations = dict(metadata.get("annotations", {}))
    annotations.pop(_LAST_APPLIED, None)
    metadata["annotations"] = annotations
    kept = {key: found[key] for key in ("apiVersion", "kind", "spec")}
    return {**kept, "metadata": metadata}


def object_of(document: Document, namespace: str | None = None) -> dict[str, Any]:
    """``document`` as an object to create, in ``namespace`` unless it names one itself."""
    found: dict[str, Any] = json.loads(canonical_json(document))
    metadata = {key: value for key, value in found["metadata"].items() if value}
    if namespace is not None:
        metadata.setdefault("namespace", namespace)
    return {**found, "metadata": metadata}


def origin(found: Mapping[str, Any]) -> str:
    """How messages name an object: ``KernelPool chat/e5-pool``."""
    metadata = found["metadata"]
    place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{found['kind']} {place}{metadata['name']}"
