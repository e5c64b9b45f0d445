"""Every room (package) with its one line, for ``docs/architecture.md``: ``python -m scripts.rooms docs``.

The line is the first one of the package's docstring. Nothing is imported.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from contracts.home import HOME, LAYERS, PACKAGE
from scripts.output import fill, table

PAGE, MARK = "architecture.md", "rooms"


def room_table() -> list[str]:
    """Layers in order from the lowest, each with its rooms."""
    inits = [init for layer in (*LAYERS, PACKAGE) for init in sorted((HOME / layer).rglob("__init__.py"))]
    return table(("room", "what it holds"), [(f"`{name_of(init)}`", line_of(init)) for init in inits])


def name_of(init: Path) -> str:
    """``controller/detect`` for its ``__init__.py``."""
    return init.parent.relative_to(HOME).as_posix()


def line_of(init: Path) -> str:
    """First line of the docstring; empty if there is none."""
    return (ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or "").split("\n")[0]


if __name__ == "__main__":
    fill(Path(sys.argv[1] if len(sys.argv) > 1 else "docs") / PAGE, {MARK: room_table()})
