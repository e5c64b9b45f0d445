"""The gate: from verdicts on clauses to one answer that a rollout may rest on.

What is not known is not good. Inconclusive is an evaluation in which

* a clause is inconclusive: it was measured, too little or too close to its threshold;
* a hard clause, or one of level L3, was not measured;
* a slice that has promises shows nothing that decides any of them.

A waiver names a clause, a slice or one clause on one slice, with a reason; it closes what is open there, and
stands in the result. It never turns a failure into anything else: one proven violation fails, whatever is
missing elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from contracts.assess.verdicts import ContractVerdict
from contracts.errors import DocumentError, refusal

#: Stands for every clause, or every slice, in a waiver.
EVERY = "*"
#: Clauses of this level must be measured like hard ones.
_GRAVEST = 3


class GateOutcome(StrEnum):
    """The whole evaluation, in the words of rollout tools."""

    SUCCESSFUL = "Successful"
    FAILED = "Failed"
    INCONCLUSIVE = "Inconclusive"
    ERROR = "Error"  # nothing was judged: bad input

    @property
    def exit_code(self) -> int:
        """Of the command: 0, 1, 3 and 2."""
        return _EXIT_CODES[self]


_EXIT_CODES = {
    GateOutcome.SUCCESSFUL: 0,
    GateOutcome.FAILED: 1,
    GateOutcome.ERROR: 2,
    GateOutcome.INCONCLUSIVE: 3,
}
_OUTCOMES = {
    ContractVerdict.PASS: GateOutcome.SUCCESSFUL,
    ContractVerdict.FAIL: GateOutcome.FAILED,
    ContractVerdict.INCONCLUSIVE: GateOutcome.INCONCLUSIVE,
}


def outcome_of(verdict: ContractVerdict) -> GateOutcome:
    """Of an evaluation's verdict, which is never ``not_measured``."""
    return _OUTCOMES[verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """What may stay open, and why; ``EVERY`` stands for any clause or slice."""

    clause_id: str
    slice: str
    reason: str

    def covers(self, clause_id: str, slice_name: str) -> bool:
        """Whether it applies to this clause on this slice."""
        return self.clause_id in (EVERY, clause_id) and self.slice in (EVERY, slice_name)


class GatedClause(Protocol):
    """What the gate reads of one judged clause on one slice."""

    @property
    def clause_id(self) -> str: ...  # noqa: D102 (as in ClauseVerdict)
    @property
    def slice(self) -> str: ...  # noqa: D102
    @property
    def hard(self) -> bool: ...  # noqa: D102
    @property
    def level(self) -> int: ...  # noqa: D102
    @property
    def verdict(self) -> ContractVerdict: ...  # noqa: D102
    @property
    def waived(self) -> str: ...  # noqa: D102


def overall(promises: Sequence[GatedClause]) -> ContractVerdict:
    """Verdict of the evaluation; the module says how."""
    found = {each.verdict for each in promises}
    if ContractVerdict.FAIL in found:
        return ContractVerdict.FAIL
    decided = ContractVerdict.PASS in found and not open_promises(promises) and not unseen_slices(promises)
    return ContractVerdict.PASS if decided else ContractVerdict.INCONCLUSIVE


def open_promises(promises: Iterable[GatedClause]) -> list[GatedClause]:
    """Promises without a waiver that keep the evaluation from passing."""
    return [each for each in promises if not each.waived and _is_open(each)]


def _is_open(promise: GatedClause) -> bool:
    if promise.verdict is ContractVerdict.NOT_MEASURED:
        return promise.hard or promise.level >= _GRAVEST
    return promise.verdict is ContractVerdict.INCONCLUSIVE


def unseen_slices(promises: Sequence[GatedClause]) -> list[str]:
    """Slices of which nothing was measured and not everything is waived, in the given order."""
    seen = {each.slice for each in promises if each.verdict is not ContractVerdict.NOT_MEASURED}
    missing = [each for each in promises if each.slice not in seen and not each.waived]
    return list(dict.fromkeys(each.slice for each in missing))


def parse_waiver(text: str) -> Waiver:
    """``CLAUSE=reason``, ``CLAUSE/SLICE=reason`` or ``*/SLICE=reason``; DocumentError for anything else."""
    place, equals, reason = text.partition("=")
    clause_id, slash, slice_name = (part.strip() for part in place.partition("/"))
    if not (equals and reason.strip() and clause_id and (slice_name or not slash)):
        raise _refusal("CLAUSE=reason, CLAUSE/SLICE=reason or */SLICE=reason", repr(text))
    if clause_id == EVERY and slice_name in ("", EVERY):
        raise _refusal("a clause or a slice by name", repr(text))
    return Waiver(clause_id=clause_id, slice=slice_name or EVERY, reason=reason.strip())


def refuse_unknown_waivers(waivers: Iterable[Waiver], clauses: Sequence[str], slices: Sequence[str]) -> None:
    """DocumentError for a waiver that names no clause or slice of the contract: it would waive nothing."""
    for waiver in waivers:
        for name, known, what in (
            (waiver.clause_id, clauses, "clauses"),
            (waiver.slice, slices, "slices"),
        ):
            if name != EVERY and name not in known:
                raise _refusal(f"one of the contract's {what}: {', '.join(known)}", repr(name))


def _refusal(expected: str, actual: str) -> DocumentError:
    hint = "e.g. --waive O-trace=the staging gateway writes no traces"
    return refusal("--waive", expected, actual, hint)
