"""Access to a server: keys, certificates, and errors that name the remedy."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest

from contracts.errors import DocumentError, MeasurementError
from live.measure.endpoint import Endpoint, stated_model

KEY = "sk-very-secret"


def ask(handler: Any, key: str = "", url: str = "http://server:8000/v1") -> dict[str, object]:
    """The answer of a fake server to one question."""
    endpoint = Endpoint(url=url, api_key=key, transport=httpx.MockTransport(handler))
    with endpoint.client() as client:
        return endpoint.answer(client, "GET", "/v1/models")


def test_the_key_travels_in_the_header_alone() -> None:
    """The server gets it as a bearer token; no representation of the endpoint shows it."""
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"])
        return httpx.Response(200, json={})

    ask(answer, KEY)
    assert seen == [f"Bearer {KEY}"]
    assert KEY not in repr(Endpoint(url="http://server", api_key=KEY))


def test_a_refused_key_is_bad_input_with_the_next_step() -> None:
    """401 names the URL and the options that give a key."""
    with pytest.raises(
        DocumentError, match=r"http://server:8000/v1/models.*401 without a key.*--api-key-env"
    ):
        ask(lambda _: httpx.Response(401))
    with pytest.raises(DocumentError, match="wrong key"):
        ask(lambda _: httpx.Response(403), KEY)


def test_an_answer_that_repeats_the_key_is_shown_without_it() -> None:
    """A server that quotes the header does not bring the key into a log."""
    with pytest.raises(MeasurementError) as caught:
        ask(lambda _: httpx.Response(500, text=f"bad: Bearer {KEY}"), KEY)
    assert KEY not in str(caught.value)
    assert "500" in str(caught.value)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (httpx.ConnectError("Connection refused"), "start the server"),
        (httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED]"), "--ca-file"),
        (httpx.ProxyError("no tunnel"), "proxy variables"),
    ],
)
def test_a_server_that_cannot_be_reached_is_bad_input(error: httpx.HTTPError, said: str) -> None:
    """The message has the URL, the error, and the remedy."""

    def answer(request: httpx.Request) -> httpx.Response:
        raise error

    with pytest.raises(DocumentError, match=f"http://server:8000: .*{said}"):
        ask(answer)


@pytest.mark.parametrize("url", ["server:8000", "ftp://server", "http://", "http://user:word@server"])
def test_urls_that_are_none_or_carry_a_password_are_refused(url: str) -> None:
    """Before anything is sent, and without the password in the message."""
    with pytest.raises(DocumentError) as caught:
        Endpoint(url=url)
    assert "word@" not in str(caught.value)


def test_certificates_come_from_the_file(tmp_path: Path) -> None:
    """A file without any is refused by name; without a file the usual certificates are used."""
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(DocumentError, match=r"ca\.pem"):
        Endpoint(url="https://server", ca_file=tmp_path / "ca.pem").client()
    assert ssl.create_default_context() is not None


@pytest.mark.parametrize(
    "other", [{"id": "other"}, {"root": "org/Other"}, {"max_model_len": 4096}, {"parent": "org/Base"}]
)
def test_models_are_told_apart_by_all_that_a_server_states(other: dict[str, Any]) -> None:
    """A model of another name, source, context or base is another one; a repeated statement is the same."""
    first: dict[str, Any] = {"id": "chat", "root": "org/Model", "max_model_len": 2048}
    keys = [stated_model({"data": [entry]}, entry["id"]) for entry in (first, dict(first), first | other)]
    assert keys[0] == keys[1] != keys[2]


def test_a_folder_with_another_checkpoint_is_another_model(tmp_path: Path) -> None:
    """Weights or a tokenizer replaced in place make another model of the same name."""
    answer = {"data": [{"id": "chat", "root": str(tmp_path)}]}
    keys = {stated_model(answer, "chat")}
    for name, text in (("model.safetensors", "1"), ("tokenizer.json", "2"), ("tokenizer.json", "three")):
        (tmp_path / name).write_text(text)
        assert stated_model(answer, "chat") == stated_model(answer, "chat")
        keys.add(stated_model(answer, "chat"))
    assert len(keys) == 4


def test_a_server_that_hangs_is_told_by_the_time_it_was_given() -> None:
    """A timeout's message is not the client's empty text, but the URL, the limit and the place to look."""

    def hang(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("", request=request)

    said = r"GET http://server:8000/v1/models: no whole answer within 120 s; look at the server's log"
    with pytest.raises(MeasurementError, match=said):
        ask(hang)


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "ftp://127.0.0.1:1"])
def test_a_proxy_that_cannot_be_used_is_bad_input(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    """A proxy variable of another kind is named, with the remedy, before anything is sent."""
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(DocumentError, match=r"HTTP_PROXY.*NO_PROXY"):
        Endpoint(url="http://server:8000").client()
