"""Verdicts as OpenTelemetry events ``gen_ai.evaluation.result``, by the standard OTEL_* variables.

Nothing of OpenTelemetry is imported until somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from contracts.errors import MissingPartError
from k8s.operator.outcomes import Evaluated

if TYPE_CHECKING:
    from opentelemetry.sdk._logs import LoggerProvider

#: Event of the semantic conventions for generative AI.
EVENT: Final = "gen_ai.evaluation.result"


def provider() -> LoggerProvider:
    """What sends events in batches, in a thread of its own, by OTLP over HTTP: endpoint, headers, resource
    and limits from the environment. Raises MissingPartError.
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


def sink(found: LoggerProvider) -> Callable[[Evaluated], None]:
    """Hands verdicts to ``found``; it does not wait for anybody."""
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
