"""A Python of its own for what a user's next command would do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT


def printed(*words: str, folder: Path = ROOT, **environment: str) -> str:
    """What ``python WORDS`` prints in a process that imports the project from ``folder``; it has to succeed.

    Compiled code is kept where it is kept for users, unless ``environment`` has a NUMBA_CACHE_DIR.
    """
    kept = {name: text for name, text in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
