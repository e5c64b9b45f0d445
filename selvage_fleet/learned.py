"""Policies that other libraries trained: see ``selvage_fleet``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contracts.loading.files import write_pinned
from scripts.sb3 import bytes_of_model

__all__ = ["export_sb3"]


def export_sb3(model: Any, path: Path | str) -> str:
    """Write the policy of a Stable-Baselines3 ``model`` (PPO, A2C) as an ONNX file; its sha256 (hex).

    ``gym:onnx=PATH`` names it wherever policies are named. Raises SelvageError for what is no plain network
    of dense layers.
    """
    return write_pinned(Path(path), bytes_of_model(model))
