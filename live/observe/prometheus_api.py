"""The HTTP API of a Prometheus: one query, its answer within limits, and every failure with its reason.

The token travels in the ``Authorization`` header and nowhere else; redirects are not followed, so it goes
to nobody but the URL that was named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

from contracts.errors import DocumentError
from contracts.loading.untrusted import MALFORMED, json_of
from live.bounded_http import OversizedAnswerError, whole_answer
from live.errors import LiveError
from live.measure.endpoint import REFUSED

#: To the end of an answer.
WITHIN_S = 5.0
#: No more of an answer is read: about 600 bytes for each sample of 200,000.
MOST_BYTES = 128 * 2**20
#: Characters that are shown of what the server says.
_SHOWN = 200
_NO_QUERY = (400, 422)


class PrometheusError(LiveError):
    """Nothing is known from a Prometheus now. reason: one word for conditions."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class PrometheusApi:
    """One server. url: below which ``/api/v1`` lies; token: read at every query, as they expire."""

    def __init__(self, url: str, client: httpx.Client, token: Callable[[], str] = str) -> None:
        self.url, self._client, self._token = url, client, token

    def query(self, text: str, within_s: float = WITHIN_S) -> Any:
        """The ``data`` that the instant query ``text`` answers; PrometheusError for whatever is less."""
        token = self._read_token()
        status, body = self._post(text, token, within_s)
        told = _parsed(body)
        if status != httpx.codes.OK or told.get("status", "success") != "success":
            raise self._refused(status, _shown(told.get("error") or body[:_SHOWN], token), bool(token))
        if warnings := told.get("warnings"):
            raise PrometheusError("PartialAnswer", f"{self.url} warns: {_shown(warnings, token)}")
        if "data" not in told:
            step = "is it the HTTP API of a Prometheus?"
            raise PrometheusError("UnreadableAnswer", f"{self.url}: expected JSON with data; {step}")
        return told["data"]

    def _refused(self, status: int, said: str, with_token: bool) -> PrometheusError:
        """What an answer that is none means."""
        if status in REFUSED:
            given = "with this token" if with_token else "without a token"
            step = "let --prometheus-token-file name a token that may query it"
            return PrometheusError("PrometheusRefused", f"{self.url}: HTTP {status} {given}; {step}")
        reason = "QueryRefused" if status in _NO_QUERY else "QueryFailed"
        return PrometheusError(reason, f"{self.url}: HTTP {status}: {said}")

    def _read_token(self) -> str:
        try:
            return self._token()
        except (DocumentError, OSError) as error:
            raise PrometheusError("TokenUnreadable", str(error)) from None

    def _post(self, text: str, token: str, within_s: float) -> tuple[int, bytes]:
        """Status and body."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        form = {"query": text, "timeout": f"{within_s:g}s"}
        url = f"{self.url}/api/v1/query"
        try:
            answer = whole_answer(self._client, "POST", url, within_s, MOST_BYTES, data=form, headers=headers)
        except (httpx.ReadTimeout, OversizedAnswerError) as error:
            limit = f"{within_s:g} s" if isinstance(error, httpx.TimeoutException) else f"{MOST_BYTES} bytes"
            raise PrometheusError("PartialAnswer", f"{self.url}: no whole answer within {limit}") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            message = f"{self.url} does not answer: {type(error).__name__}"
            step = "is it up, and does the NetworkPolicy let the operator reach it?"
            raise PrometheusError("PrometheusUnreachable", f"{message}; {step}") from None
        return answer.status_code, answer.content


def _parsed(body: bytes) -> dict[str, Any]:
    """The JSON object in ``body``, empty where it is none."""
    try:
        told = json_of(body)
    except MALFORMED:
        return {}
    return told if isinstance(told, dict) else {}


def _shown(told: object, token: str) -> str:
    """What a server says, in printable ASCII and without the token that it may repeat."""
    text = " ".join((told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)).split())
    return ascii(text.replace(token, "(token)") if token else text)[1:-1][:_SHOWN]
