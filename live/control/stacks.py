"""Records of single fleets stacked into one batch, and split again, with as little copying as possible.

Splitting gives views of the batch. Records that are stacked again with the same neighbours get the array
behind those views, so that a batch which stays together is stacked once. That is safe because records are
never changed in place; ``compact_copy`` frees a record that leaves from the memory of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from inspect import getattr_static
from operator import is_
from typing import Any

import numpy as np

#: Array of all fleets, and the row of each.
Split = tuple[np.ndarray[Any, Any], Sequence[Any]]


class NotOneBatchError(ValueError):
    """Records that are no batch."""


class Stacks:
    """What one batch was stacked from and is parted into. before: ``given`` of the batches of a tick ago."""

    def __init__(self, before: dict[int, Split] | None = None) -> None:
        self._before = before or {}
        self._parts: dict[int, Split] = {}
        self._copies: set[int] = set()

    def stacked(self, records: Sequence[Any]) -> Any:
        """Records of one fleet each as one of all; ``NotOneBatchError`` where their shapes differ."""
        first = records[0]
        if isinstance(first, np.ndarray):
            whole, rows = self._split(records)
            self._parts[id(whole)] = whole, rows
            return whole
        if isinstance(first, dict):
            if any(one.keys() != first.keys() for one in records):
                raise NotOneBatchError(f"expected the arrays {sorted(first)} of each fleet")
            return {name: self.stacked([one[name] for one in records]) for name in first}
        if is_record(first):
            names, make = _shape_of(first)
            return make([self.stacked([getattr(one, name) for one in records]) for name in names])
        if any(one != first for one in records):
            raise NotOneBatchError(f"expected {first!r} of each fleet")
        return first

    def parted(self, batch: Any, like: Any, count: int) -> Sequence[Any]:
        """``batch`` of ``count`` fleets as a record for each. ``like``: such a record of one fleet, which
        tells arrays with a row for each fleet from those that all share.
        """
        if isinstance(batch, np.ndarray):
            if id(batch) not in self._parts:
                self._parts[id(batch)] = batch, _rows(batch, like, count)
            return self._parts[id(batch)][1]
        if isinstance(batch, dict):
            if not isinstance(like, dict) or batch.keys() != like.keys():
                raise NotOneBatchError(f"expected the arrays {sorted(batch)}")
            columns = [self.parted(batch[name], like[name], count) for name in batch]
            return [dict(zip(batch, row, strict=True)) for row in _transposed(columns, count)]
        if is_record(batch):
            if type(like) is not type(batch):
                raise NotOneBatchError(f"expected a {type(batch).__name__}, got a {type(like).__name__}")
            names, make = _shape_of(batch)
            columns = [self.parted(getattr(batch, name), getattr(like, name), count) for name in names]
            return [make(row) for row in zip(*columns, strict=True)]
        if (batch is None) != (like is None):
            raise NotOneBatchError(f"expected {like!r}, got {batch!r}")
        return [batch] * count

    def given(self, batch: Any) -> dict[int, Split]:
        """Arrays of ``batch``, which was split, by their first rows, so that they can be stacked again.

        Copies of rows that the tick left alone are no part of it: they would take their memory twice.
        """
        splits = (self._parts[id(array)] for array in arrays_in(batch) if id(array) not in self._copies)
        return {
            id(rows[0]): (whole, rows)
            for whole, rows in splits
            if rows[0] is not whole and whole.flags.c_contiguous and whole.flags.writeable
        }

    def _split(self, records: Sequence[np.ndarray[Any, Any]]) -> Split:
        """Of all fleets: the array that ``records`` are the rows of already, else a new one and its rows."""
        first = records[0]
        known = self._before.get(id(first))
        if known is not None and len(known[1]) == len(records) and all(map(is_, known[1], records)):
            return known
        if any(one.shape != first.shape or one.dtype != first.dtype for one in records) or len(first) != 1:
            raise NotOneBatchError(f"expected arrays of one fleet each, of {first.shape}")
        whole = np.concatenate(records)
        self._copies.add(id(whole))
        return whole, list(records)


def is_record(value: Any) -> bool:
    """Whether ``value`` is a dataclass' record."""
    return is_dataclass(value) and not isinstance(value, type)


def arrays_in(value: Any) -> Iterator[np.ndarray[Any, Any]]:
    """Every array in ``value``."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from arrays_in(inner)
    elif is_record(value):
        for name in _shape_of(value)[0]:
            yield from arrays_in(getattr(value, name))


def compact_copy(value: Any) -> Any:
    """``value`` whose arrays hold no more memory than they need: rows of a batch are copied."""
    if isinstance(value, np.ndarray):
        shares = value.base is not None and getattr(value.base, "nbytes", 0) > value.nbytes
        return value.copy() if shares else value
    if isinstance(value, dict):
        return {name: compact_copy(inner) for name, inner in value.items()}
    if is_record(value):
        names, make = _shape_of(value)
        return make([compact_copy(getattr(value, name)) for name in names])
    return value


def _shape_of(record: Any) -> tuple[tuple[str, ...], Callable[[Sequence[Any]], Any]]:
    kind: Any = type(record)
    return _shape(kind)


@cache
def _shape(kind: type) -> tuple[tuple[str, ...], Callable[[Sequence[Any]], Any]]:
    """Names of the fields of ``kind``, and what makes a record of their values in that order.

    A frozen record's constructor asks for each field by name; where nothing else is done, they are filled in.
    """
    names = tuple(item.name for item in fields(kind))
    if hasattr(kind, "__post_init__"):
        return names, lambda values: kind(**dict(zip(names, values, strict=True)))
    return names, _in_slots(kind, names) if hasattr(kind, "__slots__") else _in_dictionary(kind, names)


def _in_slots(kind: type, names: tuple[str, ...]) -> Callable[[Sequence[Any]], Any]:
    fills = [getattr_static(kind, name).__set__ for name in names]

    def make(values: Sequence[Any]) -> Any:
        found: Any = object.__new__(kind)
        for fill, value in zip(fills, values, strict=True):
            fill(found, value)
        return found

    return make


def _in_dictionary(kind: type, names: tuple[str, ...]) -> Callable[[Sequence[Any]], Any]:
    def make(values: Sequence[Any]) -> Any:
        found: Any = object.__new__(kind)
        vars(found).update(zip(names, values, strict=True))
        return found

    return make


def _transposed(columns: Sequence[Sequence[Any]], count: int) -> Sequence[tuple[Any, ...]]:
    """Rows of ``columns``, empty ones where there is no column."""
    return list(zip(*columns, strict=True)) if columns else [()] * count


def _rows(batch: np.ndarray[Any, Any], like: Any, count: int) -> list[Any]:
    """A view of each row; copies where the rows are no whole pieces of memory, which compiled code wants."""
    if not isinstance(like, np.ndarray) or like.dtype != batch.dtype:
        raise NotOneBatchError("expected an array as one fleet alone has it")
    if batch.shape == (count, *like.shape[1:]) and len(like) == 1:
        rows = [batch[at : at + 1] for at in range(count)]
        return rows if batch.flags.c_contiguous and batch.flags.writeable else [row.copy() for row in rows]
    if batch.shape == like.shape:
        return [batch] * count
    raise NotOneBatchError(f"expected {count} rows of {like.shape[1:]}, got {batch.shape}")
