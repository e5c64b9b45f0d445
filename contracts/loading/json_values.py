"""JSON that somebody else wrote, parsed only where it cannot fill the memory.

An empty list takes three bytes in a file and seventy in memory, so a file within its cap may still unpack to
more than a gigabyte, and keep Python's collector busy for half a minute.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

#: Most values of one text; what Selvage itself writes has one per twenty bytes.
MOST_VALUES = 4_000_000


def json_of(text: bytes | str, unique: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The value of the JSON ``text``; ``unique``: makes objects of their pairs.

    Raises what ``json.loads`` raises, and ValueError for more than ``MOST_VALUES``.
    """
    refuse_crowded(text)
    return json.loads(text, object_pairs_hook=unique)


def refuse_crowded(text: bytes | str) -> None:
    """ValueError where ``text`` may hold more than ``MOST_VALUES``: every value but the first follows one of
    the signs that are counted.
    """
    if len(text) < MOST_VALUES:
        return
    content = text if isinstance(text, bytes) else text.encode(errors="replace")
    found = sum(content.count(sign) for sign in (b",", b"[", b"{"))
    if found > MOST_VALUES:
        raise ValueError(f"at most {MOST_VALUES} values are read, {found} may be here")
