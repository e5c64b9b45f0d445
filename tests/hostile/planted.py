"""Readers that fail on about every fourth file, each in its own way, to test that the fuzzer finds them."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from contracts.errors import SelvageError
from tests.hostile import mutations
from tests.hostile.readers import Reader, refused_if, written

_SWOLLEN_BYTES = 300_000_000


def raising() -> None:
    """An error of a foreign type."""
    raise KeyError("absent")


def leaving() -> None:
    """An exit that ``except Exception`` does not catch."""
    raise SystemExit(0)


def hanging() -> None:
    """A loop that catches whatever is raised into it."""
    while True:
        try:
            time.sleep(60.0)
        except BaseException:
            continue


def hanging_in_c() -> None:
    """A call that never returns to bytecode, so that no signal handler of Python runs."""
    ctypes.PyDLL(None).sleep(60)


def slow() -> None:
    """Returns, but too late."""
    time.sleep(1.3)


def swelling() -> None:
    """Really allocates memory, though not for long."""
    held = b"x" * _SWOLLEN_BYTES
    refused_if(bool(held))


def swallowing() -> None:
    """The same, and stays there, whatever is raised."""
    held = b"x" * _SWOLLEN_BYTES
    while held:
        try:
            time.sleep(60.0)
        except BaseException:
            continue


def dying() -> None:
    """An end without an exception."""
    os._exit(3)


def crashing() -> None:
    """The end of a native library."""
    os.abort()


def now_and_then(fault: Callable[[], None]) -> Reader:
    """A reader that refuses half of the files, and runs ``fault`` for every fourth."""

    def read(path: Path) -> None:
        first = sha256(path.read_bytes()).digest()[0]
        if path.name == "mutated" and first < 64:
            fault()
        if first < 192 and path.name == "mutated":
            raise SelvageError("refused")

    return Reader(read=read, originals=written("plain.json", '{"a": [1, 2, 3]}'), kinds=mutations.JSON)


FAULTS = (raising, leaving, hanging, hanging_in_c, slow, swelling, swallowing, dying, crashing)
READERS = {"sound": now_and_then(lambda: None)} | {fault.__name__: now_and_then(fault) for fault in FAULTS}
