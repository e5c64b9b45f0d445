"""Fleets whose controllers are set up alike decide in one batched tick, each as it would alone.

Set-ups are alike where they are equal but for the contract's name and hash: names of kernels, slices and
replicas, what is promised, capacities, homes, stages, policy, detector, options and meta-contract. A policy
that holds anything but plain values (a network) is alike to none. What cannot be put together is left to
whoever asks: it decides alone.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from contracts.telemetry import FleetTelemetry
from controller.decision import Decision
from controller.options import ControllerSetup
from controller.ports import Clock
from controller.state import ControllerState
from live.control.clocks import CpuClock
from live.control.turns import Decided, decide

_LOG = logging.getLogger(__name__)
#: Fleets of one batch: what they decide with stays in a processor's cache.
MOST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One fleet that is to decide. like: what it decided before; None: never, so it decides alone."""

    setup: ControllerSetup
    key: Hashable | None  # ``setup_key``
    before: ControllerState
    telemetry: FleetTelemetry
    like: Decision | None


class _Apart(ValueError):
    """Records that are no batch."""


def setup_key(setup: ControllerSetup) -> Hashable | None:
    """Equal for set-ups that decide alike; None where nobody can tell."""
    contract = replace(setup.fleet.contract, name="", sha256="")
    nameless = replace(setup.fleet, contract=contract)
    try:
        return _plain(replace(setup, fleet=nameless))
    except _Apart:
        return None


def decide_together(asked: Mapping[str, Asked], cpu: Clock | None = None) -> dict[str, Decided]:
    """What each of ``asked`` decides, of those that are alike to another one; raises nothing."""
    groups: dict[Hashable, list[str]] = defaultdict(list)
    for name, one in asked.items():
        if one.key is not None and one.like is not None:
            groups[one.key, one.telemetry.probes.valid.shape].append(name)
    found: dict[str, Decided] = {}
    for names in groups.values():
        for begin in range(0, len(names), MOST):
            chunk = names[begin : begin + MOST]
            if len(chunk) > 1:
                found |= _decided(chunk, [asked[name] for name in chunk], cpu or CpuClock())
    return found


def _decided(names: Sequence[str], asked: Sequence[Asked], cpu: Clock) -> dict[str, Decided]:
    first, began_ms = asked[0], cpu.now_ms()
    assert first.like is not None  # only such are grouped
    try:
        parts: dict[int, list[Any]] = {}
        before = stacked([one.before for one in asked], parts)
        telemetry = stacked([one.telemetry for one in asked], parts)
        batch_after, batch_decision = decide(before, telemetry, first.setup)
        after = parted(batch_after, first.before, len(asked), parts)
        decisions = parted(batch_decision, first.like, len(asked), parts)
    except Exception as error:  # one fleet may be to blame: alone, it harms nobody
        _LOG.warning("%d policies decide one by one: %s", len(names), error)
        return {}
    spent_ms = (cpu.now_ms() - began_ms) / len(asked)
    return {
        name: Decided(after=state, decision=decision, spent_ms=spent_ms, fleets=len(asked))
        for name, state, decision in zip(names, after, decisions, strict=True)
    }


def stacked(records: Sequence[Any], parts: dict[int, list[Any]] | None = None) -> Any:
    """Records of one fleet each as one record of all; ValueError where they have not the same shapes.

    ``parts`` gets the arrays that each array was made of, so that what a tick leaves alone stays shared.
    """
    first = records[0]
    if isinstance(first, np.ndarray):
        if any(one.shape != first.shape or one.dtype != first.dtype for one in records) or len(first) != 1:
            raise _Apart(f"expected arrays of one fleet each, of {first.shape}")
        whole = np.concatenate(records)
        if parts is not None:
            parts[id(whole)] = list(records)
        return whole
    if isinstance(first, dict):
        if any(one.keys() != first.keys() for one in records):
            raise _Apart(f"expected the arrays {sorted(first)} of each fleet")
        return {name: stacked([one[name] for one in records], parts) for name in first}
    if is_dataclass(first) and not isinstance(first, type):
        names = [item.name for item in fields(first)]
        return type(first)(
            **{name: stacked([getattr(one, name) for one in records], parts) for name in names}
        )
    if any(one != first for one in records):
        raise _Apart(f"expected {first!r} of each fleet")
    return first


def parted(batch: Any, like: Any, count: int, parts: dict[int, list[Any]]) -> list[Any]:
    """``batch`` of ``count`` fleets as a record for each. ``like``: such a record of one fleet, which tells
    arrays with a row for each fleet from those that all share. ``parts``: arrays that were parted already.
    """
    if id(batch) in parts:
        return parts[id(batch)]
    if isinstance(batch, np.ndarray):
        found = _rows(batch, like, count)
        parts[id(batch)] = found
        return found
    if isinstance(batch, dict):
        if not isinstance(like, dict) or batch.keys() != like.keys():
            raise _Apart(f"expected the arrays {sorted(batch)}")
        columns = [parted(batch[name], like[name], count, parts) for name in batch]
        return [dict(zip(batch, row, strict=True)) for row in _transposed(columns, count)]
    if is_dataclass(batch) and not isinstance(batch, type):
        if type(like) is not type(batch):
            raise _Apart(f"expected a {type(batch).__name__}, got a {type(like).__name__}")
        names = [item.name for item in fields(batch)]
        columns = [parted(getattr(batch, name), getattr(like, name), count, parts) for name in names]
        return [type(batch)(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
    if (batch is None) != (like is None):
        raise _Apart(f"expected {like!r}, got {batch!r}")
    return [batch] * count


def _transposed(columns: Sequence[Sequence[Any]], count: int) -> Sequence[tuple[Any, ...]]:
    """Rows of ``columns``, empty ones where there is no column."""
    return list(zip(*columns, strict=True)) if columns else [()] * count


def _rows(batch: np.ndarray[Any, Any], like: Any, count: int) -> list[Any]:
    """Each row with its own memory: who keeps one row does not keep all."""
    if not isinstance(like, np.ndarray) or like.dtype != batch.dtype:
        raise _Apart("expected an array as one fleet alone has it")
    if batch.shape == (count, *like.shape[1:]) and len(like) == 1:
        return [batch[at : at + 1].copy() for at in range(count)]
    if batch.shape == like.shape:
        return [batch] * count
    raise _Apart(f"expected {count} rows of {like.shape[1:]}, got {batch.shape}")


def _plain(value: Any) -> Hashable:
    """``value`` as nested tuples that are equal where all of it is; ``_Apart`` for what is not plain."""
    if value is None or isinstance(value, (bool, int, float, str, Enum)):
        return repr(value)
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, (tuple, list)):
        return tuple(_plain(one) for one in value)
    if isinstance(value, dict):
        return tuple(sorted((repr(key), _plain(one)) for key, one in value.items()))
    if is_dataclass(value) and not isinstance(value, type):
        inner = tuple(_plain(getattr(value, item.name)) for item in fields(value))
        return type(value).__module__, type(value).__qualname__, inner
    raise _Apart(f"a {type(value).__name__} is no plain value")
