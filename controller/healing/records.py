"""Records of the re-admission of one replica: its terms, its state, what was observed, the next order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from contracts.documents.drill import Undo


class HealingPhase(StrEnum):
    """Phase of a replica's re-admission."""

    RESTARTING = "Restarting"
    FLUSHING = "Flushing"
    PROBING = "Probing"
    READMITTING = "Readmitting"
    WAITING = "Waiting"
    HEALED = "Healed"
    FAILED = "Failed"


class Flush(StrEnum):
    """How the prefix cache was dealt with."""

    FLUSHED = "flushed"
    RESTARTED = "emptied by a restart"
    NOT_OFFERED = "its prefix cache was not flushed, because the server offers no flush"
    FAILED = "not flushed"


class HealingOrder(StrEnum):
    """What the caller is to do now."""

    RESTART = "restart"
    FLUSH = "flush"
    PROBE = "probe"
    NOTHING = "nothing"


#: The defaults of a drill's undo.
_UNSAID = Undo()


@dataclass(frozen=True, slots=True, kw_only=True)
class HealingTerms:
    """Terms of re-admission.

    verify_probes: probes that must agree before any traffic; readmit_over_s: time in which the traffic share
    rises to 1, in ``steps``; wait_s, most_wait_s: first and longest wait after a setback; attempts: number
    after which re-admission has failed, 0 for no limit.
    """

    verify_probes: int = _UNSAID.verify_probes
    readmit_over_s: float = _UNSAID.readmit_over_s
    reset_caches: bool = _UNSAID.reset_caches
    restart: bool = False
    steps: int = 4
    wait_s: float = 10.0
    most_wait_s: float = 600.0
    attempts: int = 0

    def __post_init__(self) -> None:
        """ValueError for terms that verify nothing, or under which no replica ever comes back."""
        good = self.verify_probes >= 1 and self.steps >= 1 and self.attempts >= 0
        times = 0.0 <= self.readmit_over_s < math.inf and 0.0 < self.wait_s <= self.most_wait_s < math.inf
        if not (good and times):
            raise ValueError(
                "expected verify_probes and steps >= 1, attempts >= 0, readmit_over_s >= 0 and"
                f" 0 < wait_s <= most_wait_s, got {self}"
            )

    @property
    def step_probes(self) -> int:
        """Probes that must agree in each step of re-admission."""
        return math.ceil(self.verify_probes / self.steps)


def drill_terms(undo: Undo, wait_s: float, attempts: int) -> HealingTerms:
    """What a drill's document asks of a replica that comes back; its waits do not grow."""
    return HealingTerms(
        verify_probes=undo.verify_probes,
        readmit_over_s=undo.readmit_over_s,
        wait_s=wait_s,
        most_wait_s=wait_s,
        attempts=attempts,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HealingSight:
    """What came in since the last tick. restarted, flush None: no such order has ended.

    agreed, failed: verification probes that ended; one that was not answered has failed.
    """

    now_s: float
    restarted: bool | None = None
    flush: Flush | None = None
    agreed: int = 0
    failed: int = 0
    told: str = ""  # of the first failure, without any text of prompts or answers


@dataclass(frozen=True, slots=True, kw_only=True)
class HealingState:
    """Where one replica stands. since_at_s: when its phase, or its step, began."""

    phase: HealingPhase
    since_at_s: float
    attempt: int = 1
    agreed: int = 0  # in this phase or step
    step: int = 0  # of re-admission, from 1 on
    wait_s: float = 0.0  # of phase WAITING
    flush: Flush | None = None
    told: str = ""
    verified: int = 0  # probes that agreed in this attempt

    @property
    def ended(self) -> bool:
        """Healed or failed: nothing more happens."""
        return self.phase in (HealingPhase.HEALED, HealingPhase.FAILED)
