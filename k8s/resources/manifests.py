"""The definitions as YAML files, for ``kubectl apply -k``: generated, never edited."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from k8s.resources.definition import definition
from k8s.resources.kinds import RESOURCES

_HEAD = "# Generated from the document models by `selvage kubernetes crds`; do not edit.\n"


def manifest_files() -> dict[str, str]:
    """File name -> text of every definition, and the kustomization that lists them."""
    found = {f"{kind.plural}.yaml": _text(definition(kind)) for kind in RESOURCES}
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": sorted(found),
    }
    return {**found, "kustomization.yaml": _text(kustomization)}


def write_manifests(folder: Path) -> list[Path]:
    """Write every file into ``folder``; the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in manifest_files().items():
        paths.append(folder / name)
        paths[-1].write_text(text, encoding="utf-8")
    return paths


def _text(manifest: Mapping[str, object]) -> str:
    return _HEAD + str(yaml.dump(manifest, Dumper=_Plain, sort_keys=False, width=110, allow_unicode=True))


class _Plain(yaml.SafeDumper):
    """Writes what stands twice twice: API servers take no YAML aliases for granted."""

    def ignore_aliases(self, _data: object) -> bool:
        return True
