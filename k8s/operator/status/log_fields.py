"""Fields of log lines: names of objects beside the message, and nothing that users or servers sent."""

from __future__ import annotations

import logging
from typing import Final

#: Attribute of a log record that holds them, apart from the record's own.
_ATTRIBUTE: Final = "selvage_fields"
#: What a line may name.
NAMES: Final = frozenset(
    {"condition", "drill", "identity", "kernel", "kind", "name", "namespace", "policy", "pool", "promotion",
     "reason", "replica", "route", "slice", "stage", "status"}
)  # fmt: skip


def fields(**named: str) -> dict[str, dict[str, str]]:
    """``extra`` of a log call; empty ones are left out. ValueError for a name that is none of NAMES."""
    if unknown := sorted(named.keys() - NAMES):
        raise ValueError(f"expected fields of {sorted(NAMES)}, got {unknown}")
    return {_ATTRIBUTE: {name: value for name, value in named.items() if value}}


def fields_of(record: logging.LogRecord) -> dict[str, str]:
    """The fields of ``record``; none of what others log."""
    return dict(getattr(record, _ATTRIBUTE, {}))
