"""Fields of log lines: names of objects beside the message; nothing that users or servers sent."""

from __future__ import annotations

import logging
from typing import Final

#: Attribute of a log record that holds the fields.
_ATTRIBUTE: Final = "selvage_fields"
#: Allowed names of fields.
NAMES: Final = frozenset(
    {"condition", "drill", "identity", "kernel", "kind", "name", "namespace", "policy", "pool", "promotion",
     "reason", "replica", "route", "slice", "stage", "status"}
)  # fmt: skip


def fields(**named: str) -> dict[str, dict[str, str]]:
    """Argument ``extra`` for a log call, without empty fields. ValueError for a name not in NAMES."""
    if unknown := sorted(named.keys() - NAMES):
        raise ValueError(f"expected fields of {sorted(NAMES)}, got {unknown}")
    return {_ATTRIBUTE: {name: value for name, value in named.items() if value}}


def fields_of(record: logging.LogRecord) -> dict[str, str]:
    """The fields of ``record``; empty for records logged without ``fields``."""
    return dict(getattr(record, _ATTRIBUTE, {}))
