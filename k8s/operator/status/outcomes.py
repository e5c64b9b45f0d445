"""Outcomes of a policy's turns: counters since the process started, and events for clause verdicts. Pure.

A verdict on a clause causes an event only when it changes.
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

#: Outcomes of a turn: weights or rotation changed, nothing changed, telemetry was silent, no decision, or an
#: unforeseen error ended it.
OUTCOMES: Final = ("moved", "kept", "held", "unread", "failed")
#: Reasons for which the shield changes rows.
SHIELD_REASONS: Final = tuple(str(one.name).lower() for one in ShieldReason)
#: Reasons for which the baseline policy takes over.
DEMOTION_REASONS: Final = (*POLICY_METRICS, "operator")


def _zeros(names: tuple[str, ...]) -> Counter[str]:
    """Counters at 0 for all names, so that Prometheus sees the first increase."""
    return Counter(dict.fromkeys(names, 0))


@dataclass(slots=True)
class Tally:
    """Counters of one policy. The label values are fixed by this build, so their number is small."""

    decisions: Counter[str] = field(default_factory=lambda: _zeros(OUTCOMES))
    """Turns by outcome."""
    interventions: Counter[str] = field(default_factory=lambda: _zeros(SHIELD_REASONS))
    """Rows of the table that the shield changed, by reason; a row may have several."""
    demotions: Counter[str] = field(default_factory=lambda: _zeros(DEMOTION_REASONS))
    """How often the baseline took over, by the metric that the policy broke, or ``operator``."""
    _demoted: bool | None = None
    """Whether the baseline drove at the last turn; None: unknown, and a demotion is not counted."""

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


#: Maximum number of events of one policy in one turn; the rest follows in the next turns.
MOST: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """A changed verdict on one clause, for one kernel and slice."""

    policy: str
    clause: str
    kernel: str
    slice: str
    excess: float
    """Relative excess over the clause's limit, 0 if the clause is kept."""
    label: Literal["pass", "fail"]


@dataclass(slots=True)
class Evaluations:
    """Passes changed verdicts to ``sink``; a clause that never alarmed is not reported."""

    sink: Callable[[Evaluated], None]
    _failing: dict[str, set[tuple[str, str, str]]] = field(default_factory=dict)
    """Policy -> (kernel, slice, clause) whose last reported verdict is fail."""

    def drop(self, policy: str) -> None:
        """Forget ``policy``, which was deleted."""
        self._failing.pop(policy, None)

    def turned(self, policy: str, setup: ControllerSetup, turn: Turn) -> None:
        """Report the verdicts that changed with ``turn``."""
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
    """At most ``MOST`` (kernel, slice, clause) whose verdict differs from ``failing``, with the excess; None
    if the clause is kept.
    """
    assert turn.decision is not None
    judgement, layout, clauses = turn.decision.judgement, setup.layout, setup.contract.clause_ids
    now = {
        (layout.kernels[k], layout.slices[s], clauses[c]): float(judgement.excess[0, k, s, c])
        for k, s, c in np.argwhere(judgement.alarm[0])
    }
    for place in sorted(failing ^ now.keys())[:MOST]:
        yield place, now.get(place)
