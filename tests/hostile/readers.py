"""The mutated files and their readers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from contracts.errors import SelvageError
from tests.hostile.mutations import Mutation


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """read: of a file. originals: files for it, made in a folder. kinds: their mutations.
    needs: optional parts. refused_share: least share of the mutations that must be refused.
    """

    read: Callable[[Path], object]
    originals: Callable[[Path], list[Path]]
    kinds: tuple[Mutation, ...]
    needs: tuple[str, ...] = ()
    refused_share: float = 0.2


class NotedError(SelvageError):
    """A reader that never raises left something out and reported it."""


def refused_if(refused: bool, why: str = "left out") -> None:
    """Raise NotedError if a reader took nothing from its file."""
    if refused:
        raise NotedError(why)


def written(name: str, content: str | bytes) -> Callable[[Path], list[Path]]:
    """A file of ``content``."""

    def make(folder: Path) -> list[Path]:
        plain = content.encode() if isinstance(content, str) else content
        (folder / name).write_bytes(plain)
        return [folder / name]

    return make
