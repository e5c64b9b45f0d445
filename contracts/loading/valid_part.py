"""The valid part of a document with errors, so that breaches between fields are reported in the same pass.

What is wrong is taken out as narrowly as the kind allows: an unknown key or an optional value by itself; a
required text, number, choice of a few words or group of such is replaced by a stand-in; otherwise the list
entry that holds it is removed.

A breach is not reported where its rule concerns anything taken out, or a name that went with it: it may be
gone when the error is corrected. Nor is one that depends on a stand-in: the rules are applied twice, with
different stand-ins, and only what both runs report counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import ge, gt, le, lt
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from contracts.documents import Document
from contracts.errors import KeyPath
from contracts.loading.explain_errors import models_in
from contracts.rules import Breach, breaches

#: What may stand in for a required value, by its type: the first and the last that are allowed.
_TEXTS: tuple[object, ...] = ("-", "x", "y", "--", "0" * 64, "1" * 64)
_NUMBERS: tuple[object, ...] = (1e-3, 0.5, 1.0, 1e9)
_COUNTS: tuple[object, ...] = (1, 2, 1_000_000)
#: Most rounds in which errors may appear that others had hidden.
_ROUNDS = 8

#: More rules between fields: of what a document refers to, for example.
Rules = Callable[[Document], Iterable[Breach]]


def breaches_of_valid_part(model: type[Document], value: object, also: Rules | None = None) -> list[Breach]:
    """Broken rules of the valid part of ``value``, at their places in the whole document.

    also: rules beside those of the kind.
    """
    part = _Part(model=model, whole=value)
    documents = [part.document()]
    if part.replaced:
        part.turn = -1
        documents.append(part.document())
    names = part.names_gone()
    found = [_part_breaches(part, one, names, also) for one in documents if one is not None]
    if len(found) < len(documents):
        return []
    return [b for b in found[0] if all(b in others for others in found[1:])]


def _part_breaches(part: _Part, document: Document, names: set[str], also: Rules | None) -> list[Breach]:
    asked = [*breaches(document), *(() if also is None else also(document))]
    found = [replace(b, path=part.place(b.path)) for b in asked]
    return [b for b in found if not part.touches(b.path) and b.actual not in names]


@dataclass(slots=True, kw_only=True)
class _Part:
    """A document with what is wrong taken out, or replaced; turn: which of the stand-ins replaces it."""

    model: type[Document]
    whole: object
    gone: set[KeyPath] = field(default_factory=set)
    replaced: dict[KeyPath, tuple[object, ...]] = field(default_factory=dict)
    turn: int = 0

    def document(self) -> Document | None:
        """The valid part as a document; None where nothing valid is left."""
        for _ in range(_ROUNDS):
            try:
                return self.model.model_validate(self._without(self.whole, ()))
            except ValidationError as error:
                places = [(self.place(tuple(e["loc"])), str(e["type"])) for e in error.errors()]
                taken = [self._take_out(place, kind) for place, kind in places]
                if not all(taken):
                    return None
        return None

    def place(self, path: KeyPath) -> KeyPath:
        """Place in the whole document of ``path`` of the valid part."""
        found: KeyPath = ()
        for step in path:
            if isinstance(step, int):
                kept = [i for i in range(len(_at(self.whole, found) or ())) if (*found, i) not in self.gone]
                step = kept[step] if step < len(kept) else step
            found = (*found, step)
        return found

    def touches(self, path: KeyPath) -> bool:
        """Whether ``path`` holds, or lies in, something taken out."""
        cut = self.gone | self.replaced.keys()
        return any(path[: len(one)] == one or one[: len(path)] == path for one in cut)

    def names_gone(self) -> set[str]:
        """Names of the entries that were taken out, and names that were replaced, as a breach quotes them."""
        entries = [_at(self.whole, path) for path in self.gone]
        named = [e.get(key) for e in entries if isinstance(e, Mapping) for key in ("name", "id")]
        named += [_at(self.whole, path) for path in self.replaced]
        return {repr(name) for name in named if name is not None}

    def _take_out(self, place: KeyPath, kind: str) -> bool:
        """Mark what to take out for the error at ``place``; False where that would be the whole document."""
        if kind == "extra_forbidden":
            self.gone.add(place)
            return True
        for length in range(len(place), 0, -1):
            path = place[:length]
            found = _field(self.model, path)
            if isinstance(path[-1], int) or (found is not None and not found.is_required()):
                self.gone.add(path)
                return True
            if length == len(place) and found is not None and (allowed := _stand_ins(found)):
                self.replaced[path] = allowed
                return True
        return False

    def _without(self, value: object, at: KeyPath) -> object:
        if isinstance(value, Mapping):
            kept = {k: self._without(v, (*at, k)) for k, v in value.items() if (*at, k) not in self.gone}
            return kept | {p[-1]: to[self.turn] for p, to in self.replaced.items() if p[:-1] == at}
        if isinstance(value, tuple):
            entries = enumerate(value)
            return tuple(self._without(v, (*at, i)) for i, v in entries if (*at, i) not in self.gone)
        return value


def _at(value: Any, path: Iterable[str | int]) -> Any:
    """The value at ``path`` of the whole document; None where there is none."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _field(model: type[BaseModel], path: KeyPath) -> FieldInfo | None:
    """The field that ``path`` ends in; None for an entry of a list, and where the kind has no such key."""
    current, found = model, None
    for step in path:
        if isinstance(step, int):
            found = None
            continue
        found = {one.alias or name: one for name, one in current.model_fields.items()}.get(step)
        nested = [] if found is None else models_in(found.annotation)
        if nested:
            current = nested[0]
    return found


def _stand_ins(found: FieldInfo) -> tuple[object, ...]:
    """What is allowed in the place of a required text or number, of one of a few words, or of a group of
    such; nothing for another type. A list has none: references to its entries could not be checked.
    """
    if get_origin(found.annotation) is Literal:
        return get_args(found.annotation)
    if isinstance(found.annotation, type) and issubclass(found.annotation, BaseModel):
        return _groups(found.annotation)
    by_type = ((str, _TEXTS), (float, _NUMBERS), (int, _COUNTS))
    given = next((some for kind, some in by_type if found.annotation is kind), ())
    return tuple(one for one in given if all(_allows(bound, one) for bound in found.metadata))


def _groups(model: type[BaseModel]) -> tuple[object, ...]:
    """Two different groups of stand-ins for a required ``model``; none where one of its fields has none."""
    needed = {one.alias or name: one for name, one in model.model_fields.items() if one.is_required()}
    allowed = {name: _stand_ins(one) for name, one in needed.items()}
    if not all(allowed.values()):
        return ()
    return tuple({name: some[turn] for name, some in allowed.items()} for turn in (0, -1))


def _allows(bound: Any, value: Any) -> bool:
    """Whether one condition of a field's type, as pydantic keeps it, holds for ``value``."""
    pattern = getattr(bound, "pattern", None)
    if pattern is not None:
        return re.search(pattern, value) is not None
    most = getattr(bound, "max_length", None)
    if most is not None and len(value) > most:
        return False
    return all(
        getattr(bound, name, None) is None or holds(value, getattr(bound, name))
        for name, holds in (("gt", gt), ("ge", ge), ("lt", lt), ("le", le))
    )
