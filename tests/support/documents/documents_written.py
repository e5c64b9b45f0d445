"""Documents as the tests write them: an envelope around a spec, and YAML."""

from __future__ import annotations

from pathlib import Path

import yaml


def envelope(kind: str, name: str, spec: dict[str, object]) -> dict[str, object]:
    """A document in the Kubernetes-style envelope."""
    return {"apiVersion": "selvage.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def write_yaml(path: Path, document: dict[str, object]) -> Path:
    """Write ``document`` as YAML without aliases, keys in the given order."""
    dumper = yaml.SafeDumper
    dumper.ignore_aliases = lambda self, data: True  # type: ignore[method-assign]
    path.write_text(yaml.dump(document, Dumper=dumper, sort_keys=False), encoding="utf-8")
    return path
