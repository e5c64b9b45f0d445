"""The sound part of a document that has errors, so that the rules between fields are told in the same pass.

What is wrong is taken out as narrowly as the kind allows: an unknown key or an optional value by itself, a
required text stands in as one, and else the entry of a list that holds it. Breaches of rules that concern
anything taken out, or a name that went with it, are not told: they may be gone when the error is mended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from contracts.documents import Document
from contracts.errors import KeyPath
from contracts.loading.explain_errors import models_in
from contracts.rules import Breach, breaches

#: What stands in for a required text; no rule reads it.
_TEXT = "-"
#: So often errors may come to light behind others.
_ROUNDS = 8


def other_breaches(model: type[Document], value: object) -> list[Breach]:
    """Broken rules of the sound part of ``value``, at the places where they stand in the whole."""
    part = _Part(model=model, whole=value)
    document = part.document()
    if document is None:
        return []
    names = part.names_gone()
    found = [
        Breach(path=part.place(b.path), expected=b.expected, actual=b.actual, next_step=b.next_step)
        for b in breaches(document)
    ]
    return [b for b in found if not part.touches(b.path) and b.actual not in names]


@dataclass(slots=True, kw_only=True)
class _Part:
    """A document with what is wrong taken out, or replaced by a text."""

    model: type[Document]
    whole: object
    gone: set[KeyPath] = field(default_factory=set)
    replaced: set[KeyPath] = field(default_factory=set)

    def document(self) -> Document | None:
        """The sound part as a document; None where nothing sound is left."""
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
        """Where ``path`` of the sound part stands in the whole."""
        found: KeyPath = ()
        for step in path:
            if isinstance(step, int):
                kept = [i for i in range(len(_at(self.whole, found) or ())) if (*found, i) not in self.gone]
                step = kept[step] if step < len(kept) else step
            found = (*found, step)
        return found

    def touches(self, path: KeyPath) -> bool:
        """Whether ``path`` holds, or lies in, something taken out."""
        cut = self.gone | self.replaced
        return any(path[: len(one)] == one or one[: len(path)] == path for one in cut)

    def names_gone(self) -> set[str]:
        """Names of the entries that were taken out, as a breach quotes them."""
        entries = [_at(self.whole, path) for path in self.gone]
        named = [e.get(key) for e in entries if isinstance(e, Mapping) for key in ("name", "id")]
        return {repr(name) for name in named if name is not None}

    def _take_out(self, place: KeyPath, kind: str) -> bool:
        """Mark what must go for the error at ``place``; False where that would be the whole document."""
        if kind == "extra_forbidden":
            self.gone.add(place)
            return True
        for length in range(len(place), 0, -1):
            path = place[:length]
            found = _field(self.model, path)
            if isinstance(path[-1], int) or (found is not None and not found.is_required()):
                self.gone.add(path)
                return True
            if length == len(place) and found is not None and _is_text(found):
                self.replaced.add(path)
                return True
        return False

    def _without(self, value: object, at: KeyPath) -> object:
        if isinstance(value, Mapping):
            kept = {k: self._without(v, (*at, k)) for k, v in value.items() if (*at, k) not in self.gone}
            texts = [path[-1] for path in self.replaced if path[:-1] == at]
            return {**kept, **dict.fromkeys(texts, _TEXT)}
        if isinstance(value, tuple):
            entries = enumerate(value)
            return tuple(self._without(v, (*at, i)) for i, v in entries if (*at, i) not in self.gone)
        return value


def _at(value: Any, path: Iterable[str | int]) -> Any:
    """What stands at ``path`` of the whole; None where nothing does."""
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


def _is_text(found: FieldInfo) -> bool:
    """Whether any few words will do."""
    return found.annotation is str and not any(getattr(m, "pattern", None) for m in found.metadata)
