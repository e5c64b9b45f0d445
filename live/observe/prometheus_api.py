"""The HTTP API of a Prometheus: one query, a bounded answer, and a reason for every failure.

The token is sent in the ``Authorization`` header only. Redirects are not followed, so the token is sent only
to the URL that was named.
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

#: Time limit of a whole answer, s.
WITHIN_S = 5.0
#: Size limit of an answer: about 600 bytes for each of 200,000 samples.
MOST_BYTES = 128 * 2**20
#: Characters of the server's message that are shown.
_SHOWN = 200
_NO_QUERY = (400, 422)


class PrometheusError(LiveError):
    """The Prometheus cannot provide data now. reason: one word, for status conditions."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class PrometheusApi:
    """One server. url: the part before ``/api/v1``; token: read at every query, because tokens expire."""

    def __init__(self, url: str, client: httpx.Client, token: Callable[[], str] = str) -> None:
        self.url, self._client, self._token = url, client, token

    def query(self, text: str, within_s: float = WITHIN_S) -> Any:
        """The ``data`` of the answer to the instant query ``text``; PrometheusError for any other outcome."""
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
        """The error for an unsuccessful answer."""
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
        """Status and body of the answer."""
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
    """The JSON object in ``body``; empty if there is none."""
    try:
        told = json_of(body)
    except MALFORMED:
        return {}
    return told if isinstance(told, dict) else {}


def _shown(told: object, token: str) -> str:
    """The server's message in printable ASCII, without the token, which it might repeat."""
    text = " ".join((told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)).split())
    return ascii(text.replace(token, "(token)") if token else text)[1:-1][:_SHOWN]
