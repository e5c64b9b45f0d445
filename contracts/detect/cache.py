"""Calibrations on disk: one small JSON file each, under the user's cache folder.

A damaged or foreign file counts as absent. Nothing here changes a result, only how soon it is there.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from contracts.detect.calibrate import Calibration

#: Raised when an algorithm of ``calibrate`` changes, so that older results are not taken for new ones.
VERSION = 1


def default_folder() -> Path:
    """``$XDG_CACHE_HOME/selvage/detect``, by default under ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "selvage" / "detect"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskStore:
    """The ``Store`` in ``folder``."""

    folder: Path

    def _path(self, detector: str, law: str, arl0: float, seed: int, runs: int) -> Path:
        key = json.dumps([VERSION, detector, law, arl0, seed, runs])
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"

    def get(self, detector: str, law: str, arl0: float, seed: int, runs: int) -> Calibration | None:
        """What was stored for exactly these."""
        try:
            fields = json.loads(self._path(detector, law, arl0, seed, runs).read_text(encoding="utf-8"))
            found = Calibration(**fields)
        except (OSError, ValueError, TypeError):
            return None
        same = (found.detector, found.law, found.arl0, found.seed) == (detector, law, arl0, seed)
        return found if same and math.isfinite(found.threshold) else None

    def put(self, found: Calibration, runs: int) -> None:
        """Write at once or not at all; a folder that cannot be written is no error."""
        path = self._path(found.detector, found.law, found.arl0, found.seed, runs)
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps(asdict(found), sort_keys=True), encoding="utf-8")
            os.replace(partial, path)
        except OSError:
            return
