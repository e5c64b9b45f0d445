"""Finished results of a run, kept in a folder by the hash of everything that decides them.

A rerun of the same command resumes where it stopped. A kept result is used only if sources, versions
and every fact that the caller names are the same; otherwise, or if a file cannot be read, the work is done
again. With plug-ins nothing is kept: the inputs of their code are in no hash of ours.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from contracts.errors import DocumentError
from contracts.loading.files import canonical_sha256
from contracts.loading.untrusted import json_of
from contracts.regular_files import TEXT_BYTES, read_regular
from scripts.output import ready_folder, write_whole
from scripts.provenance import machine_facts, sources_sha256
from simulator.world.compiled_scenario import CompiledScenario

_FORMAT = 1
_GROUPS = ("policies", "detectors", "metrics", "faults")


def world_facts(world: CompiledScenario) -> list[object]:
    """Every hash of the inputs of ``world``."""
    pins = [world.name, world.sha256, world.pool_sha256, world.trace_sha256, world.contract.sha256]
    return [*pins, *world.profile_sha256]


class KeptResults:
    """The folder of kept results of one run; None keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._asked: set[str] = set()

    @cached_property
    def _code(self) -> list[object]:
        versions = {name: text for name, text in machine_facts().items() if name.startswith("version_")}
        return [_FORMAT, sources_sha256(), versions]

    @cached_property
    def _is_ours(self) -> bool:
        return not any(entry_points(group=f"selvage_fleet.{name}") for name in _GROUPS)

    def key(self, *facts: object) -> str:
        """Name under which the result determined by ``facts`` is kept; "" if it must not be kept."""
        if self._folder is None or not self._is_ours:
            return ""
        key = canonical_sha256([self._code, *facts])
        self._asked.add(key)
        return key

    def load(self, key: str) -> Any:
        """The plain result under ``key``; None if the work must be done."""
        if self._folder is None or not key:
            return None
        with suppress(DocumentError, ValueError, RecursionError):
            return json_of(read_regular(self._folder / f"{key}.json", TEXT_BYTES))
        return None

    def save(self, key: str, plain: Any) -> None:
        """Save ``plain``, which JSON can hold; unknown numbers are read back as such."""
        if self._folder is not None and key:
            ready_folder(self._folder)
            write_whole(self._folder / f"{key}.json", json.dumps(plain, sort_keys=True))

    def tidy(self) -> None:
        """Delete results that this run did not ask for."""
        for file in self._files():
            if file.stem not in self._asked:
                file.unlink()

    def forget(self) -> None:
        """Delete everything: the run is finished, and its result is written."""
        for file in self._files():
            file.unlink()
        if self._folder is not None:
            with suppress(OSError):
                self._folder.rmdir()

    def _files(self) -> list[Path]:
        return [] if self._folder is None else list(self._folder.glob("*.json"))


def parts_folder(out: Path) -> Path:
    """Folder for the parts of the run whose result is the file ``out``, until it is written."""
    return out.with_name(f"{out.stem}-parts")
