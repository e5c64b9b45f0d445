"""CustomResourceDefinitions, generated from the document models, which are the only schema.

Their YAML files, for ``kubectl apply -k``, are generated and never edited by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from contracts.loading.files import write_texts
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
    """The CustomResourceDefinition of every kind."""
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
    """The document's schema with its cross-field rules and its status."""
    schema = structural_schema(kind.model)
    spec = schema["properties"]["spec"]
    spec["x-kubernetes-validations"] = [rule.as_json() for rule in RULES[kind.name]]
    schema["properties"]["status"] = status_schema(kind.name)
    return schema


_HEAD = "# Generated from the document models by `selvage kubernetes crds`; do not edit.\n"


def manifest_files() -> dict[str, str]:
    """File name -> text, for every definition and the kustomization that lists them."""
    found = {f"{kind.plural}.yaml": _text(definition(kind)) for kind in RESOURCES}
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": sorted(found),
    }
    return {**found, "kustomization.yaml": _text(kustomization)}


def write_manifests(folder: Path) -> list[Path]:
    """Write every file into ``folder``; returns the paths."""
    return write_texts(folder, manifest_files())


def _text(manifest: Mapping[str, object]) -> str:
    return _HEAD + str(yaml.dump(manifest, Dumper=_Plain, sort_keys=False, width=110, allow_unicode=True))


class _Plain(yaml.SafeDumper):
    """Writes repeated objects in full: not every API client accepts YAML aliases."""

    def ignore_aliases(self, _data: object) -> bool:
        return True
