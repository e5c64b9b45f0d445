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

#: Most values of one text; what Selvage itself writes has one per twenty bytes.
MOST_VALUES = 4_000_000


def json_of(text: bytes | str, unique: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The value of the JSON ``text``; ``unique``: makes objects of their pairs.

    Raises what ``json.loads`` raises, and ValueError for more than ``MOST_VALUES``.
    """
    refuse_too_many_values(text)
    return json.loads(text, object_pairs_hook=unique)


def json_line_problem(error: Exception) -> str:
    """What is wrong with one line of JSON; ``json`` itself calls every line the first."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg[:1].lower()}{error.msg[1:]} in column {error.colno}"
    return str(error)


def refuse_too_many_values(text: bytes | str) -> None:
    """ValueError where ``text`` may hold more than ``MOST_VALUES``: every value but the first follows one of
    the signs that are counted.
    """
    if len(text) < MOST_VALUES:
        return
    content = text if isinstance(text, bytes) else text.encode(errors="replace")
    found = sum(content.count(sign) for sign in (b",", b"[", b"{"))
    if found > MOST_VALUES:
        raise ValueError(f"at most {MOST_VALUES} values are read, {found} may be here")


#: Of JSON in which something is missing, is of another kind, nests without end or is no finite number.
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
    """The arrays ``names`` (None: all) of the archive that is ``content``.

    ValueError where it is damaged, has anything but arrays, or unpacks to more than may be; sizes are checked
    before anything is unpacked.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            refuse_inflated(archive)
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            missing = [name for name in names or () if name not in stored.files]
            if missing:
                raise ValueError(f"missing arrays {', '.join(missing)}")
            return {name: _plain(name, stored[name]) for name in names or stored.files}
    except Exception as error:  # a damaged header makes numpy's and zipfile's parsers raise almost anything
        raise ValueError(str(error) or type(error).__name__) from error


def _plain(name: str, found: object) -> NDArray[np.generic]:
    """``found``, which must be an array, and take room: thousands of millions of empty texts take none."""
    if not isinstance(found, np.ndarray):
        raise ValueError(f"{name} is no array")
    if found.dtype.itemsize == 0 and found.size:
        raise ValueError(f"{name} has numbers or texts without length")
    if found.dtype.kind == "U" and not _is_text(found):
        raise ValueError(f"{name}: expected Unicode text, got a number that is no character")
    return found


def _is_text(array: NDArray[np.generic]) -> bool:
    """Every character of a text array exists; Python itself takes numbers for characters unseen."""
    if array.dtype.itemsize == 0 or array.size == 0:
        return True
    plain = np.ascontiguousarray(array).reshape(-1)
    codes = plain.view(np.dtype("u4").newbyteorder(array.dtype.byteorder))
    return not bool((codes > sys.maxunicode).any() or ((codes >= 0xD800) & (codes < 0xE000)).any())
