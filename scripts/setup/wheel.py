"""Print the requirements that a wheel's METADATA names for this machine, one per line.

``python wheel.py WHEEL [SKIPPED_NAME ...]``: run inside the environment that will hold them, so
environment markers are evaluated by its Python. pip's own copy of ``packaging`` reads them: nothing else is
sure to be installed yet.
"""

from __future__ import annotations

import sys
from email.parser import Parser
from zipfile import ZipFile

from pip._vendor.packaging.requirements import Requirement


def requirements(metadata: str, skipped: set[str]) -> list[str]:
    """Requirements of ``metadata`` whose markers hold here, without extras' and ``skipped`` ones."""
    lines = Parser().parsestr(metadata).get_all("Requires-Dist") or []
    wanted = [Requirement(line) for line in lines]
    kept = [r for r in wanted if r.name.lower() not in skipped]
    kept = [r for r in kept if r.marker is None or r.marker.evaluate({"extra": ""})]
    for requirement in kept:
        requirement.marker = None
    return sorted({str(requirement) for requirement in kept})


def read_metadata(wheel: str) -> str:
    """Text of the METADATA file inside ``wheel``."""
    with ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()


if __name__ == "__main__":
    print("\n".join(requirements(read_metadata(sys.argv[1]), set(sys.argv[2:]))))
