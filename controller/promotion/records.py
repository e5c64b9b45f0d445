"""Records of a promotion: its terms, its state, and what one tick shows of the candidate."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from contracts.assess.gate import GateOutcome
from contracts.compiled.contract import Level


class PromotionStage(StrEnum):
    """Stage of a candidate's promotion."""

    OFFLINE = "Offline"  # judged on measurements only; it gets no request
    SHADOW = "Shadow"  # a share of the requests is mirrored to it, and its answers are dropped
    CANARY = "Canary"  # a bounded share of every slice
    FULL = "Full"  # a kernel like the others, and judged like them
    ROLLED_BACK = "RolledBack"  # broke its contract, or was withdrawn: the end of this attempt


#: The one stage that may follow another by promotion.
NEXT_STAGE = {
    PromotionStage.OFFLINE: PromotionStage.SHADOW,
    PromotionStage.SHADOW: PromotionStage.CANARY,
    PromotionStage.CANARY: PromotionStage.FULL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTerms:
    """Requirements of a stage before the next one; counts are those of the running window of compliance."""

    stability_s: float  # of judged compliance without a break
    least_probes: int  # on every slice
    least_answers: int  # of the candidate's servers
    deadline_s: float  # of judged time in the stage, after which it is inconclusive


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionTerms:
    """A ``KernelPromotion`` as the machine reads it."""

    shadow: StageTerms
    canary: StageTerms
    mirror_ratio: float  # of every slice's requests, in shadow
    canary_ratio: float  # most of a slice, as a canary
    guard_ratio: float  # the same while an L2 clause is in alarm
    gates: frozenset[PromotionStage] = frozenset()  # entered only with a person's approval
    confirms: frozenset[PromotionStage] = frozenset()  # entered only while webhooks confirm it
    vetoes: frozenset[PromotionStage] = frozenset()  # in which webhooks may object, and must answer


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineResult:
    """Result of the check of the offline evidence."""

    outcome: GateOutcome
    reason: str  # one word
    message: str
    evidence_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionSight:
    """What one tick shows of the candidate. probes: number of new ones, per slice [S]."""

    now_s: float
    carried: bool = True  # False: no weights are written (frozen, observing, a foreign route): no clock runs
    seen: bool = True  # False: telemetry is silent or no replica serves: no evidence for the candidate
    level: Level = Level.NORMAL  # worst of its slices
    hard_violated: bool = False  # on any slice
    certified: bool = True  # on every slice; an alarm is latched until it is re-certified
    probes: tuple[int, ...] = ()
    answers: int = 0  # new
    offline: OfflineResult | None = None  # None: not read yet
    approved: frozenset[PromotionStage] = frozenset()
    confirmed: frozenset[PromotionStage] = frozenset()  # every webhook that opens it said yes last
    unopposed: frozenset[PromotionStage] = frozenset()  # every webhook that may veto it had no objection last
    refused: str = ""  # the webhook that vetoes the present stage, and its answer; "" for none
    held_up_by: str = ""  # last answers of webhooks that delay it, for people
    withdrawn: bool = False  # a person asked for the rollback

    @property
    def broken(self) -> bool:
        """An L3 or hard clause is broken."""
        return self.hard_violated or self.level >= Level.FALLBACK

    @property
    def guarded(self) -> bool:
        """An L2 clause is in alarm, or one that was has not been re-certified."""
        return not self.broken and (self.level >= Level.GUARD or not self.certified)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionState:
    """State of one attempt. subject: hash of the candidate, its terms and its contract."""

    subject: str
    stage: PromotionStage = PromotionStage.OFFLINE
    verdict: GateOutcome | None = None  # None: not decided yet
    reason: str = "AwaitingEvidence"  # one word
    message: str = "the offline evidence was not read yet"
    judged_at_s: float | None = None  # last tick, of the world's clock; None: none yet
    judged_s: float = 0.0  # time in this stage while weights were written
    compliant_s: float = 0.0  # judged time since the candidate last broke anything
    probes: tuple[int, ...] = ()  # [S], in the window of compliance
    answers: int = 0  # likewise
    guarded: bool = False
    waits_for: PromotionStage | None = None  # all is shown; this stage needs an approval or webhooks
    evidence_sha256: str = ""  # of the offline evidence

    @property
    def paused(self) -> bool:
        """Inconclusive after its start: it gets no traffic until the next attempt."""
        return self.verdict is GateOutcome.INCONCLUSIVE


def most_ratio(state: PromotionState, terms: PromotionTerms) -> float:
    """Largest share of a slice that the candidate may take, 0 to 1."""
    if state.stage is PromotionStage.FULL:
        return 1.0
    if state.stage is not PromotionStage.CANARY or state.paused:
        return 0.0
    return min(terms.guard_ratio, terms.canary_ratio) if state.guarded else terms.canary_ratio


def mirrored_ratio(state: PromotionState, terms: PromotionTerms) -> float:
    """Share of every slice's requests that is mirrored to the candidate, 0 to 1."""
    mirrors = state.stage is PromotionStage.SHADOW and not state.paused
    return terms.mirror_ratio if mirrors else 0.0
