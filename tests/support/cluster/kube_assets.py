"""Paths of the programs and definitions that cluster tests start; imports nothing heavy."""

from __future__ import annotations

import os
from pathlib import Path


def full_cluster() -> bool:
    """Whether tests use the cluster of KUBECONFIG, not their own server."""
    return bool(os.environ.get("SELVAGE_CLUSTER"))


def assets() -> Path | None:
    """Folder with ``etcd`` and ``kube-apiserver``; None if the variable names none."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    folder = Path(named) if named else None
    found = folder is not None and all((folder / name).is_file() for name in ("etcd", "kube-apiserver"))
    return folder if found else None


def gateway_crds() -> Path | None:
    """Folder with the Gateway API's definitions; None if the variable names none."""
    named = os.environ.get("GATEWAY_API_CRDS")
    folder = Path(named) if named else None
    return folder if folder is not None and (folder / "httproutes.yaml").is_file() else None


def pool_crd() -> Path | None:
    """The definition of InferencePool: in the folder of the Gateway API's, or in one beside it."""
    folder = gateway_crds()
    if folder is None:
        return None
    found = [folder / "inferencepools.yaml", *sorted(folder.parent.glob("*/*inferencepools.yaml"))]
    return next((one for one in found if one.is_file()), None)
