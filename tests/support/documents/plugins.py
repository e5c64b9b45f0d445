"""A made-up distribution that extends the project, as a folder to be put on the path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_plugin(
    folder: Path, module: str, groups: Mapping[str, Mapping[str, str]], source: str, name: str = "acme"
) -> None:
    """Write distribution ``name`` 1.0 into ``folder``: one ``module``, entry points by group and name."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in points.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (folder / f"{module}.py").write_text(source)
