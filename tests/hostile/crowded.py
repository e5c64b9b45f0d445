"""The JSON readers against files within their size limit that hold as many values as possible."""

from __future__ import annotations

from dataclasses import replace

from numpy.random import Generator

from tests.hostile.given_readers import GIVEN
from tests.hostile.kept_readers import KEPT
from tests.hostile.mutations import json_lines, json_value
from tests.hostile.readers import Reader
from tests.hostile.stored_readers import STORED
from tests.hostile.trained_readers import TRAINED

#: Bytes of a file, just below the read limit.
_BYTES = 60 * 2**20


def lists(_: bytes, __: Generator) -> bytes:
    """One list of empty lists."""
    return b"[" + b"[]," * (_BYTES // 3) + b"0]"


_ALL = {**GIVEN, **KEPT, **STORED, **TRAINED}
#: What an API server has already limited, and what a server of ours writes for itself.
_LIMITED = {
    "states of the operator",
    "notes of drills in clusters",
    "objects of clusters",
    "leases of faults",
}
_JSON = [
    name
    for name, reader in _ALL.items()
    if {json_value, json_lines} & set(reader.kinds) and name not in _LIMITED
]
READERS: dict[str, Reader] = {name: replace(_ALL[name], kinds=(lists,)) for name in _JSON}
