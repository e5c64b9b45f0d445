"""Size of the operator's image: ``python -m scripts.setup.image_size``, without a container runtime.

Executes the build stage of ``k8s/Containerfile`` in a folder: the wheel of this checkout, a virtual
environment, and the wheel's requirements with the image's extras under the constraints. The image copies
that environment, so its files are the image's own layer; packed like a layer, they are the transferred
bytes. The base image is the other part, whose size is published and not measured here.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

from contracts.home import HOME

#: Packages that the Containerfile installs beside the wheel itself.
EXTRAS = "k8s,otel"
#: ``python:3.11-slim`` for amd64 as transferred, by docker-library/repo-info at 2477d55, of 2026-08-05.
BASE_TRANSFERRED_BYTES = 45_520_747
#: Compression level of layers, the default of container tools.
_LEVEL = 6


def main() -> int:
    """Measure, and print a JSON object; pip's own exit code if a package cannot be installed."""
    with TemporaryDirectory(prefix="image-") as made:
        environment = Path(made) / "selvage"
        try:
            _install(environment, Path(made) / "wheels")
        except subprocess.CalledProcessError as error:
            return int(error.returncode)
        files = [path for path in environment.rglob("*") if path.is_file() and not path.is_symlink()]
        own = packed_bytes(environment)
        found = {
            "own_bytes": sum(path.stat().st_size for path in files),
            "own_files": len(files),
            "own_transferred_bytes": own,
            "base_transferred_bytes": BASE_TRANSFERRED_BYTES,
            "transferred_bytes": own + BASE_TRANSFERRED_BYTES,
        }
    print(json.dumps(found, indent=2))
    return 0


def packed_bytes(folder: Path) -> int:
    """Size of ``folder`` as a layer: a tar archive, packed by gzip."""
    counted = _Counted()
    with (
        gzip.GzipFile(fileobj=counted, mode="wb", compresslevel=_LEVEL, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|") as archive,
    ):
        archive.add(folder, arcname=folder.name)
    return counted.size


class _Counted:
    """A file that keeps only its size."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: bytes) -> int:
        """Count ``data``."""
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing."""


def _install(environment: Path, wheels: Path) -> None:
    """Install as the Containerfile's build stage does."""
    _pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(HOME))
    venv.create(environment, with_pip=True, symlinks=True)
    (wheel,) = wheels.glob("*.whl")
    constraints = str(HOME / "requirements" / "constraints.txt")
    _pip(str(environment / "bin" / "python"), "install", "--constraint", constraints, f"{wheel}[{EXTRAS}]")


def _pip(python: str, *words: str) -> None:
    """Run pip with its output on stderr; it compiles byte code if the image does."""
    command = [python, "-m", "pip", *words[:1], "--no-cache-dir", "--disable-pip-version-check", *words[1:]]
    subprocess.run(command, check=True, stdout=sys.stderr, env=os.environ)


if __name__ == "__main__":
    sys.exit(main())
