"""Verdicts on clauses as events: one where a verdict changed, none while it stands. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from controller.options import ControllerSetup
from live.control.loop import Turn

#: Most events of one policy in one turn; what is beyond comes with the next turns.
MOST: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """A verdict that is not what it was."""

    policy: str
    clause: str
    kernel: str
    slice: str
    excess: float
    """Relative distance beyond the clause's limit, 0 where it is kept."""
    label: Literal["pass", "fail"]


@dataclass(slots=True)
class Evaluations:
    """Tells ``sink`` of changed verdicts; a clause that nobody ever saw in alarm is never told."""

    sink: Callable[[Evaluated], None]
    _failing: dict[str, set[tuple[str, str, str]]] = field(default_factory=dict)
    """Policy -> kernel, slice and clause that were told to fail."""

    def turned(self, policy: str, setup: ControllerSetup, turn: Turn) -> None:
        """Tell what changed with ``turn``."""
        if turn.decision is None:
            return
        failing = self._failing.setdefault(policy, set())
        for (kernel, slice_, clause), excess in _changed(setup, turn, failing):
            fails = excess is not None
            (failing.add if fails else failing.discard)((kernel, slice_, clause))
            self.sink(
                Evaluated(
                    policy=policy,
                    clause=clause,
                    kernel=kernel,
                    slice=slice_,
                    excess=excess or 0.0,
                    label="fail" if fails else "pass",
                )
            )


def _changed(
    setup: ControllerSetup, turn: Turn, failing: set[tuple[str, str, str]]
) -> Iterator[tuple[tuple[str, str, str], float | None]]:
    """Places whose verdict is not that of ``failing``, at most ``MOST``; excess, None where it is kept."""
    assert turn.decision is not None
    judgement, layout, clauses = turn.decision.judgement, setup.layout, setup.contract.clause_ids
    now = {
        (layout.kernels[k], layout.slices[s], clauses[c]): float(judgement.excess[0, k, s, c])
        for k, s, c in np.argwhere(judgement.alarm[0])
    }
    for place in sorted(failing ^ now.keys())[:MOST]:
        yield place, now.get(place)
