"""What the turns of a policy came to: counted since this process began, and verdicts on clauses as events.
Pure.

There is one event where a verdict changed, and none while it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from contracts.compiled.meta import POLICY_METRICS
from controller.explain.moves import demotion_reason
from controller.options import ControllerSetup
from controller.shield.records import ShieldReason
from live.control.loop import Turn

#: What a turn came to: weights or rotation changed, nothing did, telemetry was silent, nothing was read, or
#: an unforeseen error ended it.
OUTCOMES: Final = ("moved", "kept", "held", "unread", "failed")
#: Why the shield changes rows.
SHIELD_REASONS: Final = tuple(str(one.name).lower() for one in ShieldReason)
#: Why the baseline takes over.
DEMOTION_REASONS: Final = (*POLICY_METRICS, "operator")


def _zeros(names: tuple[str, ...]) -> Counter[str]:
    """Every series stands from the begin, so that a first increase is seen."""
    return Counter(dict.fromkeys(names, 0))


@dataclass(slots=True)
class Tally:
    """Counts of one policy; reasons are those of this build, so they are few."""

    decisions: Counter[str] = field(default_factory=lambda: _zeros(OUTCOMES))
    """Turns by outcome."""
    interventions: Counter[str] = field(default_factory=lambda: _zeros(SHIELD_REASONS))
    """Rows of the table that the shield changed, by reason; a row may have several."""
    demotions: Counter[str] = field(default_factory=lambda: _zeros(DEMOTION_REASONS))
    """Times that the baseline took over, by the metric that the policy broke, or ``operator``."""
    _demoted: bool | None = None
    """Whether the baseline drove at the turn before; None: not known, and nothing is counted."""

    def turned(self, turn: Turn) -> None:
        """Count ``turn``."""
        self.decisions[_outcome(turn)] += 1
        if turn.decision is None:
            return
        shielded = turn.decision.shielded.reason[0]
        for reason in ShieldReason:
            self.interventions[str(reason.name).lower()] += int(((shielded & int(reason)) != 0).sum())
        demoted = bool(turn.decision.demoted[0])
        if demoted and self._demoted is False:
            self.demotions[demotion_reason(turn.decision, 0)] += 1
        self._demoted = demoted

    def failed(self) -> None:
        """Count a turn that an unforeseen error ended."""
        self.decisions["failed"] += 1


def _outcome(turn: Turn) -> str:
    if turn.decision is None:
        return "unread"
    if bool(turn.decision.held[0]):
        return "held"
    return "moved" if bool(turn.decision.moved[0]) else "kept"


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
    """Tells ``sink`` of changed verdicts; a clause that never alarmed is not reported."""

    sink: Callable[[Evaluated], None]
    _failing: dict[str, set[tuple[str, str, str]]] = field(default_factory=dict)
    """Policy -> kernel, slice and clause that were told to fail."""

    def drop(self, policy: str) -> None:
        """``policy`` is gone."""
        self._failing.pop(policy, None)

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
