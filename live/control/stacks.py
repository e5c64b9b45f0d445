"""Stacks records of single fleets into one batch, and splits it again, with little copying.

Splitting yields views of the batch. When these records are stacked again in the same order, the array behind
the views is reused, so a batch that stays together is stacked only once. This is safe because records are
never changed in place. ``compact_copy`` detaches a record from the memory that it shares with others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from inspect import getattr_static
from operator import is_
from typing import Any

import numpy as np

#: Array of all fleets, and the row of each fleet.
Split = tuple[np.ndarray[Any, Any], Sequence[Any]]


class NotOneBatchError(ValueError):
    """Records that cannot be stacked into one batch."""


class Stacks:
    """Memory of one batch's stacking and splitting. before: result of ``given`` from the previous tick."""

    def __init__(self, before: dict[int, Split] | None = None) -> None:
        self._before = before or {}
        self._parts: dict[int, Split] = {}
        self._copies: set[int] = set()

    def stacked(self, records: Sequence[Any]) -> Any:
        """Records of one fleet each as one record of all; ``NotOneBatchError`` if their shapes differ."""
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
        """``batch`` of ``count`` fleets, split into one record per fleet. ``like``: such a record of one
        fleet; it distinguishes arrays with a row per fleet from arrays that all fleets share.
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
        """Arrays of the split ``batch``, by the identity of their first rows, so that they can be reused.

        Copies of rows that the tick did not change are left out, because they would double their memory.
        """
        splits = (self._parts[id(array)] for array in arrays_in(batch) if id(array) not in self._copies)
        return {
            id(rows[0]): (whole, rows)
            for whole, rows in splits
            if rows[0] is not whole and whole.flags.c_contiguous and whole.flags.writeable
        }

    def _split(self, records: Sequence[np.ndarray[Any, Any]]) -> Split:
        """The existing array whose rows are ``records``, else a new one; with the rows of all fleets."""
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
    """Whether ``value`` is an instance of a dataclass."""
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
    """``value`` with arrays that hold no memory of others: rows of a batch are copied."""
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
    """Field names of ``kind``, and a function that makes a record from their values in that order.

    The generated constructor of a frozen dataclass is slow, so fields are set directly if there is no
    ``__post_init__``.
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
    """Rows of ``columns``; ``count`` empty rows if there are no columns."""
    return list(zip(*columns, strict=True)) if columns else [()] * count


def _rows(batch: np.ndarray[Any, Any], like: Any, count: int) -> list[Any]:
    """A view of each row; copies if rows are not contiguous and writeable, as compiled code requires."""
    if not isinstance(like, np.ndarray) or like.dtype != batch.dtype:
        raise NotOneBatchError("expected an array as one fleet alone has it")
    if batch.shape == (count, *like.shape[1:]) and len(like) == 1:
        rows = [batch[at : at + 1] for at in range(count)]
        return rows if batch.flags.c_contiguous and batch.flags.writeable else [row.copy() for row in rows]
    if batch.shape == like.shape:
        return [batch] * count
    raise NotOneBatchError(f"expected {count} rows of {like.shape[1:]}, got {batch.shape}")
