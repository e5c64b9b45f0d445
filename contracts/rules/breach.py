"""One broken cross-field rule, and small checks that the rules of all kinds use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from contracts.errors import KeyPath


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A broken rule at ``path``; the loader adds file and line."""

    path: KeyPath
    expected: str
    actual: str
    next_step: str


def prefixed(prefix: KeyPath, found: Iterable[Breach]) -> Iterator[Breach]:
    """``found`` with ``prefix`` put before each path."""
    for breach in found:
        yield replace(breach, path=(*prefix, *breach.path))


def repeated_names(names: Sequence[str], path: KeyPath, key: str | None) -> Iterator[Breach]:
    """A breach for each name that an earlier entry has; entries are at ``path[i].key``."""
    seen: dict[str, int] = {}
    for index, name in enumerate(names):
        place = (*path, index) if key is None else (*path, index, key)
        if name in seen:
            actual = f"{name!r} again (also entry {seen[name]})"
            yield Breach(
                path=place, expected="a name of its own", actual=actual, next_step="rename one of them"
            )
        seen.setdefault(name, index)


def unknown_name(name: str, known: Iterable[str], path: KeyPath, what: str) -> Iterator[Breach]:
    """A breach if ``name`` is not among ``known``."""
    names = list(known)
    if name not in names:
        expected = f"one of the {what}: {', '.join(names)}"
        next_step = f"correct the name, or add it to the {what}"
        yield Breach(path=path, expected=expected, actual=repr(name), next_step=next_step)


def only_block(named: str, blocks: Mapping[str, object], path: KeyPath, key: str) -> Iterator[Breach]:
    """Breaches unless the block that ``key: named`` requires is present, and no other."""
    for block, value in blocks.items():
        if block == named and value is None:
            yield Breach(
                path=(*path, block),
                expected=f"the block {block} for {key}: {named.removesuffix('_uri')}",
                actual="nothing",
                next_step=f"add {block}:, or choose another {key}",
            )
        if block != named and value is not None:
            yield Breach(
                path=(*path, block),
                expected=f"no {block} with {key}: {named.removesuffix('_uri')}",
                actual=f"{block}",
                next_step=f"remove it, or write {key}: {block.removesuffix('_uri')}",
            )
