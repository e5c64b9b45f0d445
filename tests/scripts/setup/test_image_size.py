"""The measured image is that of the Containerfile."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
from pathlib import Path

from scripts.setup.image_size import EXTRAS, packed_bytes
from tests.support.paths import ROOT

CONTAINERFILE = (ROOT / "k8s" / "Containerfile").read_text(encoding="utf-8")


def test_the_containerfile_installs_what_is_measured() -> None:
    """Extras and base are the Containerfile's, and what it copies is the environment alone."""
    assert f"[{EXTRAS}]" in CONTAINERFILE
    assert set(re.findall(r"^FROM (\S+)", CONTAINERFILE, re.MULTILINE)) == {
        "docker.io/library/python:3.11-slim"
    }
    assert re.findall(r"^COPY --from=build (.*)$", CONTAINERFILE, re.MULTILINE) == [
        "/opt/selvage /opt/selvage"
    ]


def test_a_folder_weighs_what_its_layer_does(tmp_path: Path) -> None:
    """The size is that of the packed archive, which is counted and not stored."""
    folder = tmp_path / "selvage"
    folder.mkdir()
    (folder / "text").write_text("x" * 100_000)
    (folder / "random").write_bytes(bytes(range(256)) * 40)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w|") as tar:
        tar.add(folder, arcname=folder.name)
    assert packed_bytes(folder) == len(gzip.compress(archive.getvalue(), 6, mtime=0))
