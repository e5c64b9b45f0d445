"""Plug-ins: registries of named policies, faults, metrics and detectors, and the settings that each takes.

A registry is extended by a program of one's own, or by an entry point of an installed distribution. An entry
point of the registry's group gives the name and the module that registers it on import::

    [project.entry-points."selvage_fleet.policies"]
    careful = "acme_fleet.policies"     # calls selvage_fleet.register_policy("careful", ...)

It is imported only when its name is asked for and not registered yet: a program that uses no plug-in imports
none, and a plug-in cannot replace anything built in.

The code of a plug-in is identified by one hash over the files of its top-level package; packages that it
imports are identified by their versions.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from contracts.errors import PluginError
from contracts.regular_files import hash_regular


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One number that a policy or a detector takes."""

    default: float
    unit: str
    """In which it is counted: "s", "ratio", "1" for a count or a factor."""
    meaning: str
    low: float = 0.0
    """Least value."""
    high: float = math.inf
    """Largest value; infinity: any finite one."""

    def __post_init__(self) -> None:
        if not self.allows(self.default):
            raise ValueError(f"default: expected {self.expected}, got {self.default:g}")

    def allows(self, value: float) -> bool:
        """Whether ``value`` is finite and within the range."""
        return math.isfinite(value) and self.low <= value <= self.high

    @property
    def expected(self) -> str:
        """The range in words."""
        if math.isfinite(self.high):
            return f"a number between {self.low:g} and {self.high:g}"
        return f"a finite number >= {self.low:g}"


def seconds(default: float, meaning: str) -> Parameter:
    """A time in seconds, 0 or more."""
    return Parameter(default=default, unit="s", meaning=meaning)


def ratio(default: float, meaning: str) -> Parameter:
    """A share between 0 and 1."""
    return Parameter(default=default, unit="ratio", meaning=meaning, high=1.0)


def number(default: float, meaning: str) -> Parameter:
    """A count, a factor or a weight, 0 or more."""
    return Parameter(default=default, unit="1", meaning=meaning)


def switch(default: bool, meaning: str) -> Parameter:
    """1 for on, 0 for off."""
    return Parameter(default=float(default), unit="0 or 1", meaning=meaning, high=1.0)


T = TypeVar("T")
#: Hash over its package, by group and module, of every entry point that this process has used so far.
_LOADED: dict[tuple[str, str], str] = {}


class Registry(dict[str, T]):
    """Entries by name. Looking up costs what a dict costs; only a name that is missing asks the plug-ins.

    Iterating shows what is registered; ``known`` names the plug-ins' entries as well.
    """

    def __init__(self, group: str, entries: Iterable[tuple[str, T]] = ()) -> None:
        super().__init__(entries)
        self.group = group
        self._brought: dict[str, str] = {}

    @cached_property
    def plugins(self) -> dict[str, EntryPoint]:
        """Entry points of the group by name, none of them loaded."""
        return {point.name: point for point in entry_points(group=self.group)}

    def known(self) -> list[str]:
        """Every name, sorted: registered, or brought by an entry point."""
        return sorted({*self, *self.plugins})

    def register(self, name: str, entry: T) -> None:
        """Add ``entry``; ValueError where ``name`` is taken."""
        if dict.__contains__(self, name):
            raise ValueError(f"{self.group}: {name!r} is registered already; choose another name")
        self[name] = entry

    def code_sha256(self, name: str) -> str | None:
        """Hash over the package that brought ``name``, as it was then; None for what no entry point has
        brought.
        """
        return self._brought.get(name)

    def __contains__(self, name: object) -> bool:
        """Whether ``name`` is registered, or a plug-in brings it."""
        return dict.__contains__(self, name) or name in self.plugins

    def __missing__(self, name: str) -> T:
        point = self.plugins.get(name)
        if point is None:
            raise KeyError(name)
        try:
            point.load()
        except Exception as error:
            raise _refused(
                point, "a module that can be imported", f"{type(error).__name__}: {error}"
            ) from error
        if not dict.__contains__(self, name):
            raise _refused(point, f"a module that registers {name!r} on import", "no such registration")
        self._brought[name] = _LOADED[self.group, point.module] = package_sha256(point.module)
        return self[name]


def loaded_sha256(*groups: str) -> str | None:
    """Hash over the packages of all plug-ins that this process has used so far, of ``groups`` alone where
    some are named; None where it used none.
    """
    used = {
        module.partition(".")[0]: sha256
        for (group, module), sha256 in _LOADED.items()
        if not groups or group in groups
    }
    return packages_sha256(used) if used else None


def _refused(point: EntryPoint, expected: str, actual: str) -> PluginError:
    origin = (
        f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unnamed distribution"
    )
    return PluginError(
        f"entry point {point.name!r} of group {point.group} ({point.value}, from {origin}): "
        f"expected {expected}, got {actual}; mend or uninstall that distribution"
    )


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
