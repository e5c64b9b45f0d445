"""The folder of compiled code: how it is chosen, and how many states of a source are kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from contracts.cache_folder import cache_folders, first_writable
from contracts.jit import cache
from tests.support.fresh_python import printed

HOME = Path("/somewhere/checkout")


def test_the_variable_then_the_sources_then_the_users_cache(tmp_path: Path) -> None:
    """``NUMBA_CACHE_DIR`` comes first, then the folder beside the sources, then the user's cache."""
    named = {"NUMBA_CACHE_DIR": str(tmp_path), "XDG_CACHE_HOME": "/xdg"}
    first, beside, last = cache_folders(HOME, named)
    assert first.is_relative_to(tmp_path)
    assert beside.is_relative_to(HOME / "contracts" / "jit" / "__pycache__")
    assert last.is_relative_to("/xdg/selvage")
    assert cache_folders(HOME, {"XDG_CACHE_HOME": "/xdg"}) == [beside, last]
    assert cache_folders(HOME, {})[1].is_relative_to(Path.home() / ".cache")


def test_two_installations_share_no_folder(tmp_path: Path) -> None:
    """Neither in a folder named for both nor in the user's cache."""
    environment = {"NUMBA_CACHE_DIR": str(tmp_path)}
    one, other = (cache_folders(Path("/a") / name, environment) for name in ("one", "other"))
    assert not set(one) & set(other)


def test_an_unwritable_folder_is_skipped(tmp_path: Path) -> None:
    """The first writable folder is used; if none is writable there is none."""
    (tmp_path / "file").touch()
    blocked = tmp_path / "file" / "below"
    assert first_writable([blocked, tmp_path / "new"]) == tmp_path / "new"
    assert first_writable([blocked]) is None


def test_only_the_newest_states_of_a_source_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each state of a source has its own folder, and all but the newest few are removed."""
    source = tmp_path / "source.py"
    source.touch()
    monkeypatch.setattr(cache, "_folder", lambda: tmp_path / "code")
    made = []
    for state in range(cache.KEPT + 2):
        monkeypatch.setattr(cache, "source_stamp", lambda _, state=state: f"{state:064d}"[::-1])
        made.append(cache.code_folder.__wrapped__(source))
        os.utime(made[-1], (state, state))
    assert [folder.is_dir() for folder in made] == [False] * 2 + [True] * cache.KEPT


def test_without_a_lasting_folder_there_is_one_for_the_process() -> None:
    """Where nothing can be written functions are still compiled, and nothing is left behind."""
    program = (
        "import os; from contracts.jit import cache; cache.lasting_folder = lambda: None; "
        "folder = cache._folder(); assert folder.is_dir(); print(folder)"
    )
    assert not Path(printed("-c", program).strip()).exists()
