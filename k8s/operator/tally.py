"""What the turns of a policy came to, counted since this process began. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from contracts.compiled.meta import POLICY_METRICS
from controller.explain.moves import demotion_reason
from controller.shield.records import ShieldReason
from live.control.loop import Turn

#: What a turn came to: weights or rotation changed, nothing did, telemetry was silent, or nothing was read.
OUTCOMES: Final = ("moved", "kept", "held", "unread")
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
    """Whether the baseline drove at the turn before; None: nobody knows, and nothing is counted."""

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


def _outcome(turn: Turn) -> str:
    if turn.decision is None:
        return "unread"
    if bool(turn.decision.held[0]):
        return "held"
    return "moved" if bool(turn.decision.moved[0]) else "kept"
