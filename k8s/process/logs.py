"""Logs of our processes on stderr, one JSON or text line per event, and verdicts as OpenTelemetry events.

The events are ``gen_ai.evaluation.result``, configured by the standard OTEL_* variables; OpenTelemetry is
imported only when configured. Fields beside the message (policy, route, slice, kernel) come from
``status.log_fields.fields``. Libraries log warnings and errors only: HTTP clients would write a line with the
URL for every scrape, and the Kubernetes client whole objects.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

from contracts.errors import MissingPartError, printable
from k8s.operator.status.log_fields import fields_of

if TYPE_CHECKING:
    from opentelemetry.sdk._logs import LoggerProvider

    from k8s.operator.status.outcomes import Evaluated

LogFormat = Literal["json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]

#: Loggers limited to warnings whatever level is set; kopf.objects logs every handled event at info.
_QUIET: Final = ("asyncio", "httpcore", "httpx", "kopf.objects", "kubernetes", "leaderelection", "urllib3")
#: Event of the semantic conventions for generative AI.
EVENT: Final = "gen_ai.evaluation.result"


def set_up_logs(form: LogFormat, level: LogLevel, stream: TextIO | None = None) -> None:
    """Let every logger of this process write to ``stream`` (default: stderr); replaces earlier handlers."""
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
        """The line, without a newline."""
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
    """One line per record with the fields at its end; a traceback follows on the next lines."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without a newline; control characters and newlines in it are escaped."""
        message = "".join(f" {name}={value}" for name, value in fields_of(record).items())
        head = f"{_time(record)} {record.levelname} {record.name}: "
        line = head + printable(f"{record.getMessage()}{message}")
        raised = _raised(self, record)
        return f"{line}\n{raised}" if raised else line


def _raised(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """The traceback of ``record``, "" if it has none."""
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def event_provider() -> LoggerProvider:
    """A provider that sends events in batches by OTLP over HTTP, in a thread of its own.

    Endpoint, headers, resource and limits come from the environment. Raises MissingPartError.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    except ModuleNotFoundError as error:
        raise MissingPartError(
            f"{error.name} is not installed; pip install 'selvage-fleet[k8s,otel]'"
        ) from None
    found = LoggerProvider()
    found.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    return found


def event_sink(found: LoggerProvider) -> Callable[[Evaluated], None]:
    """A function that passes verdicts to the logger provider ``found``, without waiting for their export."""
    from opentelemetry._logs import LogRecord

    logger = found.get_logger("selvage")

    def tell(one: Evaluated) -> None:
        attributes: dict[str, str | float] = {
            "gen_ai.evaluation.name": one.clause,
            "gen_ai.evaluation.score.value": one.excess,
            "gen_ai.evaluation.score.label": one.label,
            "selvage.policy": one.policy,
            "selvage.kernel": one.kernel,
            "selvage.slice": one.slice,
        }
        logger.emit(LogRecord(event_name=EVENT, attributes=attributes))

    return tell
