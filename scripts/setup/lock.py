"""Write ``requirements/constraints.txt`` from the versions in the running environment.

Included are the core, the developer tools and the torch, rl, sign, live, k8s and ray extras, with all
requirements.
Local version suffixes (``+cpu``) are left off, so one file serves CPU and GPU machines.
"""

from __future__ import annotations

import os
import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement

TARGET = Path(__file__).resolve().parents[2] / "requirements" / "constraints.txt"
EXTRAS = ("dev", "torch", "rl", "sign", "live", "k8s", "otel", "ray")
HEADER = "# Versions that the tests run with; written by `make lock`, read by the set-up step.\n"


def key(name: str) -> str:
    """Normalised distribution name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needs(name: str, extras: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """Direct requirements of an installed distribution with some extras, as (name, extras)."""
    environments = [{"extra": extra} for extra in ("", *extras)]
    wanted = [Requirement(line) for line in distribution(name).requires or []]
    return [
        (key(r.name), tuple(sorted(r.extras)))
        for r in wanted
        if r.marker is None or any(r.marker.evaluate(e) for e in environments)
    ]


def closure(root: str, extras: tuple[str, ...]) -> dict[str, str]:
    """Name -> version of all installed transitive requirements of ``root[extras]``."""
    todo, seen, versions = [(root, extras)], set(), {}
    while todo:
        item = todo.pop()
        if item in seen:
            continue
        seen.add(item)
        try:
            versions[item[0]] = distribution(item[0]).version.partition("+")[0]
        except PackageNotFoundError:
            continue
        todo += needs(*item)
    versions.pop(root)
    return versions


def main() -> None:
    """Write the file completely, or not at all."""
    versions = closure("selvage-fleet", EXTRAS)
    text = HEADER + "".join(f"{name}=={versions[name]}\n" for name in sorted(versions))
    temporary = TARGET.with_suffix(".tmp")
    temporary.write_text(text)
    os.replace(temporary, TARGET)
    print(f"{len(versions)} versions written to {TARGET}")


if __name__ == "__main__":
    main()
