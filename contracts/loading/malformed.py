"""What walking through a value that somebody else wrote may raise."""

from __future__ import annotations

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
