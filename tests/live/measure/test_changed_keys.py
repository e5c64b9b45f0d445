"""A key file that changes under a running process, and errors about certificates."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest

from contracts.errors import DocumentError, MeasurementError
from live.measure.endpoint import Endpoint


def endpoint(file: Path, sent: list[str]) -> Endpoint:
    """A server that records the keys it was sent, and repeats them."""

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers.get("authorization", ""))
        return httpx.Response(500, text=f"who is {sent[-1]}?")

    return Endpoint(url="http://server", api_key="", key_file=file, transport=httpx.MockTransport(answer))


def test_a_changed_key_file_counts_from_the_next_request_on(tmp_path: Path) -> None:
    """As a Secret is replaced by a link to another folder; an invalid key leaves the previous one."""
    link, sent = tmp_path / "key", list[str]()
    found = endpoint(link, sent)
    with found.client() as client:
        for number, content in enumerate(["", "first", "second\n", "no key\nat all", ""]):
            place = tmp_path / f"{number}"
            place.write_text(content)
            (tmp_path / "next").symlink_to(place)
            os.replace(tmp_path / "next", link)
            with pytest.raises(MeasurementError) as error:
                found.answer(client, "GET", "/v1/models")
            assert "second" not in str(error.value)
        link.unlink()
        client.get("/")
    assert sent == ["", "Bearer first", *["Bearer second"] * 4]


@pytest.mark.parametrize(
    ("message", "step"),
    [
        ("certificate verify failed: unable to get local issuer certificate", "--ca-file"),
        ("certificate verify failed: certificate has expired", "renew"),
        ("certificate verify failed: certificate is not yet valid", "clock"),
        ("certificate verify failed: Hostname mismatch, certificate is not valid for 'a'", "name the server"),
        (
            "certificate verify failed: IP address mismatch, certificate is not valid for '1.2.3.4'",
            "name the",
        ),
    ],
)
def test_what_to_do_about_a_certificate_depends_on_what_is_wrong_with_it(message: str, step: str) -> None:
    """An authority's file does not help with an expired certificate."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError(f"[SSL: CERTIFICATE_VERIFY_FAILED] {message}", request=request)

    found = Endpoint(url="https://server", transport=httpx.MockTransport(refuse))
    with found.client() as client, pytest.raises(DocumentError, match=step):
        found.answer(client, "GET", "/v1/models")
