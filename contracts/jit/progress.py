"""Who is told of functions while they are compiled, and whether all were compiled before."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba.core.event import Listener, install_listener

from contracts.jit.cache import lasting_folder
from contracts.jit.decorator import FUNCTIONS


@contextmanager
def told_of_compiling(tell: Callable[[str], None]) -> Iterator[None]:
    """``tell`` the name of every function of ours that is compiled meanwhile, when it is done."""
    with install_listener("numba:compile", _Listener(tell)):
        yield


class _Listener(Listener):
    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def on_start(self, event: Any) -> None:
        """Nothing is done yet."""

    def on_end(self, event: Any) -> None:
        """Of numba's own functions, which are compiled on the way, nobody is told."""
        function = event.data["dispatcher"]
        if function in FUNCTIONS:
            self._tell(f"{function.__module__}.{function.__qualname__}")


def is_all_compiled() -> bool:
    """Whether ``note_all_compiled`` was called for all imported functions, as their sources are now."""
    mark = _mark()
    return mark is not None and mark.is_file() and mark.read_text(encoding="utf-8") == _state()


def note_all_compiled() -> None:
    """Leave a note beside the code for ``is_all_compiled``."""
    mark = _mark()
    if mark is not None:
        mark.write_text(_state(), encoding="utf-8")


def _mark() -> Path | None:
    folder = lasting_folder()
    return None if folder is None else folder / "all-compiled"


def _state() -> str:
    folders = sorted({function._cache.cache_path for function in FUNCTIONS})
    return hashlib.sha256("\n".join(folders).encode()).hexdigest()
