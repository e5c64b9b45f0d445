"""The code of a plug-in as one hash: every file of the top-level package that its module lies in.

What that package imports from elsewhere is not in it; versions of distributions say that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from contracts.errors import PluginError
from contracts.regular_files import hash_regular


def package_sha256(module: str) -> str:
    """sha256 (hex) over names and content of all files beside ``module`` in its top-level package.

    Raises PluginError where they are nowhere, or cannot be read.
    """
    package, digest = module.partition(".")[0], hashlib.sha256()
    try:
        for name, path in sorted(_files(package)):
            digest.update(f"{name}\0{hash_regular(path)}\0".encode())
    except (OSError, ImportError, ValueError) as error:
        raise PluginError(
            f"plug-in {package!r}: expected files to hash, got {error}; install it as files"
        ) from None
    return digest.hexdigest()


def packages_sha256(found: Mapping[str, str]) -> str:
    """One hash over the hashes of several packages by name."""
    lines = (f"{name}\0{sha256}\0" for name, sha256 in sorted(found.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _files(package: str) -> Iterator[tuple[str, Path]]:
    found = find_spec(package)
    if found is None or (found.origin is None and not found.submodule_search_locations):
        raise ImportError("none")
    if not found.submodule_search_locations:
        yield package, Path(str(found.origin))
        return
    for folder in map(Path, found.submodule_search_locations):
        for path in folder.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(folder).as_posix(), path
