"""JSON and archives of arrays (``.npz``) from untrusted sources: read within limits, without pickle.

An empty list takes three bytes in a file and seventy in memory, so a file of JSON within its cap may still
unpack to more than a gigabyte, and keep Python's collector busy for half a minute.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.regular_files import refuse_inflated

#: Most values of one JSON text; Selvage's own files have one per twenty bytes.
MOST_VALUES = 4_000_000


def json_of(text: bytes | str, unique: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The value of the JSON ``text``. unique: makes each object from its key-value pairs (None: a dict).

    Raises the errors of ``json.loads``, and ValueError for more than ``MOST_VALUES`` values.
    """
    refuse_too_many_values(text)
    return json.loads(text, object_pairs_hook=unique)


def json_object_of(text: bytes | str) -> dict[str, Any]:
    """The JSON object ``text``; empty for anything else."""
    try:
        content = json_of(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of ``pairs``, for ``json_of``; ValueError for a key that stands twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def json_line_problem(error: Exception) -> str:
    """What is wrong with one line of JSON; ``json`` itself calls every line the first."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg[:1].lower()}{error.msg[1:]} in column {error.colno}"
    return str(error)


def refuse_too_many_values(text: bytes | str) -> None:
    """ValueError if ``text`` may hold more than ``MOST_VALUES`` values: each but the first follows one of the
    counted characters.
    """
    if len(text) < MOST_VALUES:
        return
    content = text if isinstance(text, bytes) else text.encode(errors="replace")
    count = sum(content.count(character) for character in (b",", b"[", b"{"))
    if count > MOST_VALUES:
        raise ValueError(f"at most {MOST_VALUES} values are read, {count} may be here")


#: Errors of code that reads JSON in which values are missing, of another type, nested too deeply or not
#: finite.
MALFORMED = (
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)


def arrays_of(content: bytes, names: Sequence[str] | None = None) -> dict[str, NDArray[np.generic]]:
    """The arrays ``names`` (None: all) of the ``.npz`` archive ``content``.

    ValueError if it is damaged, holds anything but arrays, or unpacks to more than the limit; sizes are
    checked before anything is unpacked.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            refuse_inflated(archive)
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            missing = [name for name in names or () if name not in stored.files]
            if missing:
                raise ValueError(f"missing arrays {', '.join(missing)}")
            return {name: _checked_array(name, stored[name]) for name in names or stored.files}
    except Exception as error:  # a damaged header makes numpy's and zipfile's parsers raise almost anything
        raise ValueError(str(error) or type(error).__name__) from error


def _checked_array(name: str, value: object) -> NDArray[np.generic]:
    """``value``; ValueError unless it is an array of valid items, none of zero size (of which billions take
    no room).
    """
    if not isinstance(value, np.ndarray):
        raise ValueError(f"{name} is no array")
    if value.dtype.itemsize == 0 and value.size:
        raise ValueError(f"{name} has numbers or texts without length")
    if value.dtype.kind == "U" and not _is_text(value):
        raise ValueError(f"{name}: expected Unicode text, got a number that is no character")
    return value


def _is_text(array: NDArray[np.generic]) -> bool:
    """Whether every item of a text array is a valid character; numpy does not check it."""
    if array.dtype.itemsize == 0 or array.size == 0:
        return True
    plain = np.ascontiguousarray(array).reshape(-1)
    codes = plain.view(np.dtype("u4").newbyteorder(array.dtype.byteorder))
    return not bool((codes > sys.maxunicode).any() or ((codes >= 0xD800) & (codes < 0xE000)).any())
