"""Archives of plain arrays (``.npz``) that somebody else wrote: whole, without pickle, within the caps."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from contracts.regular_files import refuse_inflated


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
