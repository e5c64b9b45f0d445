"""The stamp of a source file changes with everything that its compiled code may freeze."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from contracts.jit import sources
from controller.detect.sequential import advance, evidence, peers
from tests.support.paths import ROOT

CACHED = (
    sources.source_stamp,
    sources._read,
    sources._modules,
    sources._is_package,
    sources._outermost,
)
#: How module ``layer.user`` may import the constant of ``other.constants``.
IMPORTS = {
    "plainly": "from other.constants import LIMIT",
    "as a module": "from other import constants",
    "under another name": "import other.constants as c, os",
    "within a function": "def f():\n    from other.constants import LIMIT\n    return LIMIT",
    "over several lines": "from other.constants import (  # (see there)\n    # not this one\n    LIMIT,\n)",
    "over a continued line": "from other.constants \\\n    import LIMIT",
    "after another statement": "import os; import other.constants",
    "behind a condition": "if True: from other.constants import LIMIT",
    "through a package": "from other import LIMIT_OF_PACKAGE",
    "through a module": "from layer.between import LIMIT",
    "relatively": "from .between import LIMIT",
    "relatively, the module": "from . import between",
    "from above": "from .deep.inner import LIMIT",
}


def write(folder: Path, imports: str) -> Path:
    """A small project and its file ``layer/user.py``, which contains ``imports``."""
    files = {
        "layer/__init__.py": "",
        "layer/user.py": f"{imports}\n",
        "layer/between.py": "from other.constants import LIMIT\n",
        "layer/deep/__init__.py": "",
        "layer/deep/inner.py": "from ..between import LIMIT\n",
        "layer/unrelated.py": "import numpy\n",
        "other/__init__.py": "from other.constants import LIMIT as LIMIT_OF_PACKAGE\n",
        "other/constants.py": "LIMIT = 1.0\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "layer" / "user.py"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty folder that the stamps take for the project's home."""
    monkeypatch.setattr(sources, "HOME", tmp_path)
    return tmp_path


def stamp(file: Path) -> str:
    """Stamp of ``file`` as a new process would compute it."""
    for function in CACHED:
        function.cache_clear()
    return sources.source_stamp(file)


@pytest.mark.parametrize("imports", IMPORTS.values(), ids=IMPORTS)
def test_a_changed_constant_changes_the_stamp_of_its_importers(project: Path, imports: str) -> None:
    """However a module is imported, directly or not, its text is part of the stamp."""
    file = write(project, imports)
    before = stamp(file)
    (project / "other" / "constants.py").write_text("LIMIT = 2.0\n")
    assert stamp(file) != before


@pytest.mark.parametrize("imports", IMPORTS.values(), ids=IMPORTS)
def test_an_unrelated_change_leaves_the_stamp(project: Path, imports: str) -> None:
    """A file outside the import chain is not part of the stamp."""
    file = write(project, imports)
    before = stamp(file)
    (project / "layer" / "unrelated.py").write_text("import scipy\n")
    (project / "notes.md").write_text("other.constants\n")
    assert stamp(file) == before


@pytest.mark.parametrize("module", [np, __import__("numba")], ids=["numpy", "numba"])
def test_another_version_changes_the_stamp(
    project: Path, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code compiled with another numba or numpy is not reused."""
    file = write(project, "")
    before = stamp(file)
    monkeypatch.setattr(module, "__version__", "0.0")
    assert stamp(file) != before


def test_a_package_installed_whole_follows_imports_by_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the layers are in one package, imports that begin with its name are followed."""
    home = tmp_path / "all_of_it"
    monkeypatch.setattr(sources, "HOME", home)
    file = write(home, "from all_of_it.layer.deep import inner")
    (home / "__init__.py").write_text("")
    before = stamp(file)
    (home / "layer" / "deep" / "inner.py").write_text("LIMIT = 3.0\n")
    assert stamp(file) != before


def test_a_foreign_package_reaches_its_own_modules_and_ours(project: Path, tmp_path: Path) -> None:
    """An external policy is stamped with its package and with what it imports from the project."""
    write(project, "")
    outside = write(tmp_path / "elsewhere", "from layer.between import LIMIT\nimport numpy")
    reached = sources.reached(outside)
    assert tmp_path / "elsewhere" / "layer" / "between.py" in reached
    assert project / "other" / "constants.py" in reached


def test_the_checkout_reaches_the_constants_of_its_passes() -> None:
    """The sequential tick reaches the constants of evidence and peers; no file reaches a test."""
    for function in CACHED:
        function.cache_clear()
    reached = sources.reached(Path(str(advance.__file__)))
    assert {Path(str(peers.__file__)), Path(str(evidence.__file__))} <= reached
    assert not any(path.is_relative_to(ROOT / "tests") for path in reached)
