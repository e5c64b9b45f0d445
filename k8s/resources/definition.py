"""CustomResourceDefinitions, made from the models of the documents: there is no second schema."""

from __future__ import annotations

from typing import Any

from contracts.loading.schema import structural_schema
from k8s.resources.kinds import CATEGORY, GROUP, RESOURCES, VERSION, ResourceKind
from k8s.resources.rules import RULES
from k8s.resources.status import status_schema

Manifest = dict[str, Any]


def definition(kind: ResourceKind) -> Manifest:
    """The CustomResourceDefinition of ``kind``."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.crd_name, "labels": {"app.kubernetes.io/part-of": "selvage"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": list(kind.shorts),
                "categories": [CATEGORY],
            },
            "versions": [_version(kind)],
        },
    }


def definitions() -> tuple[Manifest, ...]:
    """Every resource of this build."""
    return tuple(definition(kind) for kind in RESOURCES)


def _version(kind: ResourceKind) -> Manifest:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [column.as_json() for column in kind.columns],
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": _schema(kind)},
    }


def _schema(kind: ResourceKind) -> Manifest:
    """The document's own schema with its cross-field rules, and the status."""
    schema = structural_schema(kind.model)
    spec = schema["properties"]["spec"]
    spec["x-kubernetes-validations"] = [rule.as_json() for rule in RULES[kind.name]]
    schema["properties"]["status"] = status_schema(kind.name)
    return schema
