"""The shipped refusing backend, as a process: ``k8s/manifests/refuse/envoy.yaml`` in a real Envoy."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from live.gateway.process import find_envoy, free_ports
from tests.support.guarded import guarded
from tests.support.paths import ROOT

FILE = ROOT / "k8s" / "manifests" / "refuse" / "envoy.yaml"
#: Ports in the shipped file: its listener, and its administration.
PORT, ADMIN = 8080, 9901


@contextmanager
def refusing(folder: Path, arguments: Sequence[str]) -> Iterator[int]:
    """Port of an Envoy with the shipped file, on ports that are free here.

    arguments: its container's, with ``/etc/refuse`` for the folder of the file.
    """
    text, (port, admin) = FILE.read_text(encoding="utf-8"), free_ports(2)
    for shipped, own in ((PORT, port), (ADMIN, admin)):
        assert text.count(f"port_value: {shipped}}}") == 1
        text = text.replace(f"port_value: {shipped}}}", f"port_value: {own}}}")
    (folder / "envoy.yaml").write_text(text, encoding="utf-8")
    own_arguments = [one.replace("/etc/refuse", str(folder)) for one in arguments]
    command = [str(find_envoy()), *own_arguments, "--disable-hot-restart"]
    log = folder / "envoy.log"
    with guarded(command, log, os.environ) as process:
        await_up(f"http://127.0.0.1:{port}", process, log)
        yield port


def await_up(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until it answers; AssertionError with the log's end if it never does."""
    until_at_s = time.monotonic() + 180.0
    while time.monotonic() < until_at_s and process.poll() is None:
        try:
            httpx.get(url, timeout=2.0)
        except httpx.HTTPError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(log.read_text()[-3000:])
