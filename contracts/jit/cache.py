"""Where the compiled code of a source file is kept: one folder for each state of its sources.

The state is part of the path because numba reads its index before it compares any stamp, and cannot read an
index that names types which no longer exist. The code of the last few states is kept: work on an earlier
branch may be continued, and two environments of one checkout may hold different versions of numba.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from contracts.cache_folder import cache_folders, first_writable
from contracts.home import HOME
from contracts.jit.sources import source_stamp

#: States of a source file whose code is kept.
KEPT = 3


@cache
def lasting_folder() -> Path | None:
    """Folder of all compiled code; None where no folder that outlives this process is writable."""
    return first_writable(cache_folders(HOME, os.environ))


@cache
def _folder() -> Path:
    """The lasting folder, else one for this process and its forks."""
    lasting = lasting_folder()
    if lasting is not None:
        return lasting
    folder = Path(mkdtemp(prefix="selvage-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    return folder


@cache
def code_folder(file: Path) -> Path:
    """Folder for the code of ``file`` in the present state of its sources; created if it is missing."""
    inside = file.is_relative_to(HOME)
    place = file.relative_to(HOME) if inside else file.relative_to(file.anchor)
    states = _folder() / ".".join(place.with_suffix("").parts)
    folder = states / source_stamp(file)[:16]
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        _forget(states)
    return folder


def _forget(states: Path) -> None:
    """Remove all but the newest folders in ``states``."""
    with os.scandir(states) as found:
        newest = sorted(found, key=lambda entry: entry.stat().st_mtime, reverse=True)
    for entry in newest[KEPT:]:
        rmtree(entry.path, ignore_errors=True)


@contextmanager
def exclusive_access(folder: Path) -> Iterator[None]:
    """One process at a time writes to ``folder``: numba's index does not allow for a second writer."""
    with (folder / ".lock").open("a") as lock:
        flock(lock, LOCK_EX)
        yield
