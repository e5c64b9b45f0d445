"""Where compiled code is kept. Standard library only: it works where numba does not import."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile


def cache_folders(home: Path, environment: Mapping[str, str]) -> list[Path]:
    """Folders for the code of the installation at ``home``, best first.

    The one that ``NUMBA_CACHE_DIR`` names, else the one beside the sources, else the user's cache. Outside
    of the sources each installation has a folder of its own: two versions never share code.
    """
    own = Path("selvage", hashlib.sha256(str(home).encode()).hexdigest()[:16])
    chosen = environment.get("NUMBA_CACHE_DIR")
    user = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    beside = home / "contracts" / "jit" / "__pycache__" / "compiled"
    return [*([Path(chosen) / own] if chosen else []), beside, user / own]


def first_writable(folders: list[Path]) -> Path | None:
    """The first of ``folders`` that files can be written in, made if need be; None without any."""
    return next((folder for folder in folders if _is_writable(folder)), None)


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True
