"""A disk that fills while a table is written: files are restored if possible, and others are named."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import httpx
import pytest

from contracts.loading.files import write_pinned
from live.errors import ActuationError
from live.gateway import driver
from live.gateway.admin import EnvoyAdmin
from live.gateway.driver import GatewayDriver, WatchedFile, versioned_resources, write_files
from live.gateway.settings import GatewayFiles, GatewaySettings


def table(folder: Path, number: int) -> list[WatchedFile]:
    """Three files of the table with this number."""
    return [versioned_resources(folder / f"{name}.json", name, [{"of": number}], number) for name in "abc"]


def envoy(folder: Path) -> EnvoyAdmin:
    """A writer of the fixed content of the files."""

    def answer(_: httpx.Request) -> httpx.Response:
        rows = [
            {"name": f"{name}.version_text", "value": json.loads(text)["version_info"]}
            for name in "abc"
            if (text := (folder / f"{name}.json").read_text())
        ]
        return httpx.Response(200, json={"stats": rows})

    return EnvoyAdmin("http://envoy", httpx.MockTransport(answer))


def test_every_file_is_put_back_that_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third file does not fit, nor does the first when it is restored: the second does."""
    files = GatewayFiles(folder=tmp_path)
    write_files(table(tmp_path, 1))
    wrote: list[str] = []

    def filling(path: Path, content: bytes) -> str:
        wrote.append(path.name)
        if wrote in (["a.json", "b.json", "c.json"], ["a.json", "b.json", "c.json", "a.json"]):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_pinned(path, content)

    one = GatewayDriver(GatewaySettings(listen_port=1, admin_port=2), files, envoy(tmp_path), timeout_s=0.1)
    monkeypatch.setattr(driver, "write_pinned", filling)
    with pytest.raises(ActuationError, match=r"No space left.*not put back in .*a\.json"):
        one.exchange(table(tmp_path, 2))
    assert [json.loads((tmp_path / f"{name}.json").read_text())["resources"] for name in "abc"] == [
        [{"of": 2}],
        [{"of": 1}],
        [{"of": 1}],
    ]
    monkeypatch.undo()
    one.exchange(table(tmp_path, 3))
    one.close()
