"""Rules of promotions beyond patterns: URLs that look valid and cannot be called."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contracts.errors import DocumentError
from contracts.loading.loader import load_text
from tests.support.documents.documents_written import envelope


def written(url: str) -> str:
    """A promotion with a webhook at ``url``."""
    evidence = {"uri": "configmap:evidence/evaluation.json", "sha256": "0" * 64}
    hook = {"name": "tests", "kind": "veto", "url": url}
    spec: dict[str, Any] = {
        "description": "a test",
        "policy": "chat",
        "candidate": "next",
        "offline": {"evaluation": evidence},
        "webhooks": [hook],
    }
    return json.dumps(envelope("KernelPromotion", "next", spec))


@pytest.mark.parametrize(
    "url", ["http://hooks.example:99999/", "http://:80/", "https://[::1/", "https://a:b:c/", "https://a:0"]
)
def test_a_url_that_cannot_be_called_is_refused(url: str) -> None:
    """A URL without a host or with an impossible port is refused at its path, with an example."""
    with pytest.raises(DocumentError, match=r"webhooks\[0\]\.url") as caught:
        load_text(written(url), "promotion")
    assert "hooks.example:8443" in str(caught.value)


@pytest.mark.parametrize("url", ["http://a", "https://[::1]:8443/a?b=c", "https://hooks.example/a@b"])
def test_a_url_that_can_be_called_is_accepted(url: str) -> None:
    """An IPv6 address, a query and an at sign in the path are accepted."""
    assert load_text(written(url), "promotion").kind == "KernelPromotion"
