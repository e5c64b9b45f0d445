"""Registries that others extend: from their own program, or by an entry point of an installed distribution.

An entry point of the registry's group names what it brings and the module that registers it on import::

    [project.entry-points."selvage_fleet.policies"]
    careful = "acme_fleet.policies"     # calls selvage_fleet.register_policy("careful", ...)

It is imported when its name is asked for and nothing of that name is registered: a program that uses no
plug-in imports none, and none can stand in for what is here already.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from contracts.errors import PluginError

T = TypeVar("T")


class Registry(dict[str, T]):
    """Entries by name. Looking up costs what a dict costs; only a name that is missing asks the plug-ins.

    Iterating shows what is registered; ``known`` names the plug-ins' entries as well.
    """

    def __init__(self, group: str, entries: Iterable[tuple[str, T]] = ()) -> None:
        super().__init__(entries)
        self.group = group

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
        return self[name]


def _refused(point: EntryPoint, expected: str, actual: str) -> PluginError:
    origin = (
        f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unnamed distribution"
    )
    return PluginError(
        f"entry point {point.name!r} of group {point.group} ({point.value}, from {origin}): "
        f"expected {expected}, got {actual}; mend or uninstall that distribution"
    )
