"""Log lines: one line per event, as JSON or text, with known fields only."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from k8s.operator.status.log_fields import fields
from k8s.process.logs import LogFormat, LogLevel, set_up_logs

_OWN = logging.getLogger("k8s.operator.tests")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Restore the root logger and the loggers of libraries afterwards."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in ("httpx", "kopf.objects", "kubernetes")}
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def told(form: LogFormat, level: LogLevel = "info") -> io.StringIO:
    """Set up logs; returns the stream that they go to."""
    stream = io.StringIO()
    set_up_logs(form, level, stream)
    return stream


def test_a_json_line_has_time_level_logger_message_and_fields() -> None:
    """A JSON line has time, level, logger, message and fields; empty fields are left out."""
    stream = told("json")
    _OWN.info("policy %s: moved", "chat", extra=fields(policy="chat", slice="prose", kernel=""))
    row = json.loads(stream.getvalue())
    assert row.pop("time").endswith("Z")
    assert row == {
        "level": "info",
        "logger": "k8s.operator.tests",
        "message": "policy chat: moved",
        "policy": "chat",
        "slice": "prose",
    }


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_message_cannot_start_a_line_of_its_own(form: LogFormat) -> None:
    """Newlines and escape sequences in a message, which may quote a server, are escaped."""
    stream = told(form)
    _OWN.warning("it said %s", "one\ntwo\x1b[2J", extra=fields(policy="chat"))
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()
    assert "chat" in stream.getvalue()


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_traceback_goes_with_its_line(form: LogFormat) -> None:
    """A traceback belongs to the record that was logged with it."""
    stream = told(form)
    try:
        raise ValueError("nobody foresaw this")
    except ValueError:
        _OWN.exception("the turn failed")
    text = stream.getvalue()
    assert "ValueError: nobody foresaw this" in text
    if form == "json":
        assert "Traceback" in json.loads(text)["exception"]


def test_levels_are_kept_and_libraries_are_quiet() -> None:
    """Records below the level are dropped, and HTTP and Kubernetes clients log no URL and no object."""
    stream = told("json", "debug")
    _OWN.debug("seen")
    for name in (
        "httpx",
        "httpcore.http11",
        "kubernetes.client.rest",
        "urllib3.connectionpool",
        "kopf.objects",
    ):
        logging.getLogger(name).info("GET http://me:secret@server/metrics")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["seen"]
    stream = told("json", "warning")
    _OWN.info("not seen")
    logging.getLogger("kopf.activities").info("not seen")
    logging.getLogger("kopf.activities").warning("seen")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["seen"]


def test_a_field_is_one_of_the_known_names() -> None:
    """Only known field names are allowed, so that no secret or prompt becomes a field."""
    with pytest.raises(ValueError, match="prompt"):
        fields(prompt="hello")
