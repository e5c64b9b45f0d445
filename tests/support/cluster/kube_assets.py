"""Paths of the programs and definitions that cluster tests start; imports nothing heavy."""

from __future__ import annotations

import os
from pathlib import Path

from scripts.setup.kube_assets import FOLDER, PROGRAMS


def full_cluster() -> bool:
    """Whether tests use the cluster of KUBECONFIG, not their own server."""
    return bool(os.environ.get("SELVAGE_CLUSTER"))


def assets() -> Path | None:
    """Folder with ``etcd`` and ``kube-apiserver``: the variable's, or the one of set-up; None without."""
    folder = Path(os.environ.get("KUBEBUILDER_ASSETS") or FOLDER)
    return folder if all((folder / name).is_file() for name in PROGRAMS) else None


def gateway_crds() -> Path | None:
    """Folder with the Gateway API's definitions: the variable's, or the one of set-up; None without."""
    folder = Path(os.environ.get("GATEWAY_API_CRDS") or FOLDER)
    return folder if (folder / "httproutes.yaml").is_file() else None


def pool_crd() -> Path | None:
    """The definition of InferencePool: in the folder of the Gateway API's, or in one beside it."""
    folder = gateway_crds()
    if folder is None:
        return None
    found = [folder / "inferencepools.yaml", *sorted(folder.parent.glob("*/*inferencepools.yaml"))]
    return next((one for one in found if one.is_file()), None)
