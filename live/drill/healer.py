"""The controller that heals a fleet during a drill, and the reasons of its moves, from its decision log.

A move for capacity alone is no judgement of the kernel that traffic leaves, so it is no false switch
(``contracts.scoring.switches``). The decision log is followed as it grows, without a check of its hash chain.
Lines that cannot be read are skipped, and a move without a stated reason counts as a move for health.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from controller.explain.moves import CAPACITY_ALONE
from live.gateway.statistics import LogTail


class Healer(Protocol):
    """A controller that heals the fleet while the drill runs."""

    def start(self) -> None:
        """Start to drive the gateway; LiveError if that is not possible."""

    def stop(self) -> None:
        """Stop driving; repeated calls have no effect."""

    def for_capacity(self, slices: tuple[str, ...]) -> NDArray[np.bool_]:
        """Bool [S]: the slice's newest move was for capacity alone. False if unknown."""
        ...


class NoHealer:
    """No controller heals the fleet."""

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def for_capacity(self, slices: tuple[str, ...]) -> NDArray[np.bool_]:
        """All False: no reasons are known."""
        return np.zeros(len(slices), dtype=np.bool_)


class MoveReasons:
    """The reason of each slice's newest move, from the decision log that a controller writes in
    ``folder``.
    """

    def __init__(self, folder: Path, slices: tuple[str, ...]) -> None:
        self._folder, self._slices = folder, slices
        self._tails: dict[str, LogTail] = {}
        self._for_capacity = np.zeros(len(slices), dtype=np.bool_)

    def for_capacity(self) -> NDArray[np.bool_]:
        """Bool [S]: the slice's newest move so far was for capacity alone; False before its first move."""
        for line in self._lines():
            for slice_name, because in _moves(line):
                if slice_name in self._slices:
                    self._for_capacity[self._slices.index(slice_name)] = because == list(CAPACITY_ALONE)
        return self._for_capacity.copy()

    def _lines(self) -> Iterator[bytes]:
        for path in sorted(self._folder.glob("decisions-*.jsonl")):
            yield from self._tails.setdefault(path.name, LogTail(path)).lines()


def _moves(line: bytes) -> Iterator[tuple[str, object]]:
    """Slice and reasons of every change of weight in a line; nothing if it is no decision record."""
    try:
        row: Any = json.loads(line)
        found = [(str(one["slice"]), one["because"]) for one in row.get("moves", ())]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return
    yield from found
