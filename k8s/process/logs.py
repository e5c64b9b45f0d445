"""Logs of our processes: a line for each event on stderr, as JSON for machines or as text for people.

Fields beside the message (policy, route, slice, kernel) come by ``k8s.operator.told.fields``. What libraries
say below a warning is left out: HTTP clients would write a line for every scrape, with its URL, and the
Kubernetes client whole objects.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

from contracts.errors import printable
from k8s.operator.told import fields_of

LogFormat = Literal["json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]

#: Told from warnings on, whatever is asked for; kopf's objects say at info that an event was handled.
_QUIET: Final = ("asyncio", "httpcore", "httpx", "kopf.objects", "kubernetes", "leaderelection", "urllib3")


def set_up_logs(form: LogFormat, level: LogLevel, stream: TextIO | None = None) -> None:
    """Let every logger of this process write to ``stream`` (stderr), in the place of what did before."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


class JsonLines(logging.Formatter):
    """One JSON object for each record: time (RFC 3339, UTC), level, logger, message, and fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        row: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if raised := _raised(self, record):
            row["exception"] = raised
        return json.dumps(row, ensure_ascii=True, default=str)


class TextLines(logging.Formatter):
    """One line for each record, the fields at its end; what an exception says stands below it."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end; nothing in it can steer a terminal or begin a line of its own."""
        told = "".join(f" {name}={value}" for name, value in fields_of(record).items())
        head = f"{_time(record)} {record.levelname} {record.name}: "
        line = head + printable(f"{record.getMessage()}{told}")
        raised = _raised(self, record)
        return f"{line}\n{raised}" if raised else line


def _raised(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """The traceback that goes with ``record``, "" for none."""
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
