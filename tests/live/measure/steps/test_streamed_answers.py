"""Server-sent events: they are read back unchanged, wherever the network splits them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import MeasurementError
from live.measure.steps import streamed_answers
from live.measure.steps.streamed_answers import payloads

#: Other characters at which texts are commonly split, raw in the JSON of many servers.
SEPARATORS = "\u0085\u2028\u2029\x0b\x0c\x1c\x1d\x1e"
TEXTS = st.lists(st.text(st.characters(codec="utf-8") | st.sampled_from(SEPARATORS)), max_size=6)


class Parts(httpx.SyncByteStream):
    """A body in pieces of ``size`` bytes."""

    def __init__(self, body: bytes, size: int) -> None:
        self.body, self.size = body, size

    def __iter__(self) -> Iterator[bytes]:
        for begin in range(0, len(self.body), self.size):
            yield self.body[begin : begin + self.size]


def answer(body: bytes, size: int = 64) -> httpx.Response:
    """A streamed answer of ``body``."""
    return httpx.Response(200, stream=Parts(body, size))


@given(TEXTS, st.integers(1, 40), st.sampled_from(["\n", "\r\n"]))
def test_every_event_comes_out_whole(texts: list[str], size: int, end: str) -> None:
    """Texts with any character, split anywhere, also within a character."""
    events = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
    body = "".join(f"data: {event}{end}{end}" for event in [*events, "[DONE]", '{"text": "after"}'])
    found = [json.loads(payload)["text"] for payload in payloads(answer(body.encode(), size))]
    assert found == texts


def test_what_is_no_event_or_was_cut_is_left_out() -> None:
    """Comments, other fields, and an unfinished event at the end."""
    body = b': ping\n\nevent: token\ndata: {"a": 1}\n\ndata: {"a": 2'
    assert list(payloads(answer(body))) == [b'{"a": 1}']


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Content without a line feed is buffered up to a stated size."""
    monkeypatch.setattr(streamed_answers, "MOST_BYTES", 1000)
    with pytest.raises(MeasurementError, match="more than 1000 bytes"):
        list(payloads(answer(b"data: " + b"x" * 2000)))
