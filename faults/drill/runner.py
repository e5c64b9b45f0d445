"""Runs one drill through its phases: before, inject, during, undo, after. It depends only on a target.

Every fault is recorded before it is injected, and undone however the run ends: at its time, when a guard is
broken, on an error and on a signal. If a server is too busy to undo, the undo is repeated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from contracts.errors import SelvageError
from contracts.scoring.episode import EpisodeRecord
from faults.client.replica import Proof
from faults.client.wire import DrillError
from faults.drill.guards import latest, worst
from faults.drill.outcome import DrillRun, FaultEvidence, Mended
from faults.drill.plan import DrillPlan, Strike

Say = Callable[[str], None]
#: An unconfirmed undo is repeated for at least this long after the first attempt, s.
RETRY_S = 30.0


class TargetGoneError(DrillError):
    """The fleet under the drill no longer exists."""


class DrillTarget(Protocol):
    """A fleet that a drill strikes. Times are seconds since ``begin``."""

    def begin(self) -> None:
        """Start load and clock."""

    def advance(self) -> float:
        """Wait for the next tick; returns the present time. TargetGoneError if the fleet is gone."""

    def record(self) -> EpisodeRecord:
        """The record of all whole ticks so far, with the incident from the first injection on."""

    def proof(self, strike: Strike) -> Proof:
        """Whether the strike's fault shows now; called before the injection as well."""

    def inject(self, strike: Strike) -> None:
        """Inject the fault, after writing its undo record. DrillError if it is refused."""

    def keep(self) -> None:
        """Renew the lease of the faults in force."""

    def undo(self, strikes: tuple[Strike, ...]) -> tuple[bool, str]:
        """Undo the strikes (idempotent); returns whether all are clean, and what was observed."""

    def mend(self) -> tuple[Mended, ...]:
        """Verify each struck replica, once per tick after the undo; returns the progress of each."""

    def end(self) -> None:
        """End the load and everything that the target started."""


class Ledger(Protocol):
    """The durable record of a running drill, so that another process can undo it."""

    def open(self) -> None:
        """Write the record; OSError if that fails."""

    def close(self, how: str) -> None:
        """Record that everything was undone."""


def run_drill(plan: DrillPlan, target: DrillTarget, ledger: Ledger, say: Say) -> DrillRun:
    """Run ``plan`` and return its data; a signal (KeyboardInterrupt) is re-raised after the undo."""
    walk = _Walk(plan=plan, target=target, ledger=ledger, say=say)
    try:
        target.begin()
        walk.go()
    except TargetGoneError as error:
        walk.stopped = str(error)
    finally:
        try:
            walk.undo()
        finally:
            target.end()
    return walk.result()


@dataclass(slots=True)
class _Walk:
    """The state of a run."""

    plan: DrillPlan
    target: DrillTarget
    ledger: Ledger
    say: Say
    now_s: float = 0.0
    injected_at_s: float = math.nan
    undone_at_s: float = math.nan  # time of the first attempt
    confirmed_at_s: float = math.nan
    tries: int = 0
    begun: list[Strike] = field(default_factory=list)
    ended: list[Strike] = field(default_factory=list)
    before: dict[str, bool] = field(default_factory=dict)
    proofs: dict[str, Proof] = field(default_factory=dict)
    undone: bool = True
    undo_told: str = "nothing was injected"
    mended: tuple[Mended, ...] = ()
    aborted: str = ""
    invalid: str = ""
    stopped: str = ""

    def go(self) -> None:
        """Run from the first tick to the last."""
        self.say(f"before: {self.plan.onset_s:g} s of {self.plan.load.rate_rps:g} requests/s")
        while (not self.invalid or not self.undone) and self.now_s < self._end_at_s():
            self.now_s = self.target.advance()
            if not math.isnan(self.undone_at_s):
                if self.undone:
                    self._mend()
                else:
                    self._try_undo()
                continue
            try:
                self._turn()
            except TargetGoneError:
                raise
            except DrillError as error:
                self.invalid = f"the injection failed: {error}"
            if self.invalid or self.aborted or self.now_s >= self.plan.undo_at_s:
                self.undo()

    def _end_at_s(self) -> float:
        if math.isnan(self.undone_at_s):
            return self.plan.total_s
        after_s = self.plan.total_s - self.plan.undo_at_s
        if not self.undone:
            return self.undone_at_s + max(after_s, RETRY_S)
        waits = any(one.healed is None for one in self.mended) or not self.mended
        usual_s = self.confirmed_at_s + after_s
        longest_s = usual_s + (self.plan.heal_s if waits else 0.0)
        # the load ends at latest_at_s: a late undo shortens the time to verify, not the phase after it
        return longest_s if self.tries == 1 else min(longest_s, max(self.plan.latest_at_s, usual_s))

    def _mend(self) -> None:
        """Verify each struck replica, and report new lines."""
        reported = {line for mended in self.mended for line in mended.lines}
        self.mended = self.target.mend()
        for at_s, line in (line for mended in self.mended for line in mended.lines if line not in reported):
            self.say(f"at {at_s:g} s: {line}")

    def _turn(self) -> None:
        """One tick before the undo."""
        for strike in self.plan.strikes:
            if strike not in self.begun and self.now_s >= strike.onset_s:
                if self.begun:
                    self._watch()  # inject nothing more into a drill that a guard ends
                if self.aborted or not self._steady() or not self._unshown(strike):
                    return
                self._inject(strike)
        if not self.begun:
            return
        if not self._kept():
            return
        self._verify()
        for strike in [one for one in self.begun if one not in self.ended and self.now_s >= one.ends_at_s]:
            if self.now_s < self.plan.undo_at_s:
                self.target.undo((strike,))
                self.ended.append(strike)
        self._watch()

    def _kept(self) -> bool:
        """Renew the leases; a fault that ended before its time makes the drill invalid."""
        try:
            self.target.keep()
        except TargetGoneError:
            raise
        except DrillError as error:
            self.invalid = f"cut short: {error}"
        return not self.invalid

    def _steady(self) -> bool:
        """Whether the steady-state hypothesis holds before the first injection; unknown is not steady."""
        if self.begun:
            return True
        record = self.target.record()
        for guard in self.plan.spec.steady_state:
            found = worst(record, guard, 0, len(record.table))
            if "before" in guard.phases and not found.holds:
                self.invalid = f"not steady before the injection: {guard.name}: {found.text}"
                return False
        return True

    def _unshown(self, strike: Strike) -> bool:
        """The negative control: the proof of the fault must be negative before the injection."""
        proof = self.target.proof(strike)
        self.before[strike.fault.name], self.proofs[strike.fault.name] = proof.happened, proof
        if proof.happened:
            self.invalid = f"{strike.fault.name}: the proof says yes before the injection: {proof.evidence}"
        return not proof.happened

    def _inject(self, strike: Strike) -> None:
        where = ", ".join(strike.replicas) or "the load"
        if not self.begun:
            self.ledger.open()
        self.begun.append(strike)
        self.say(f"inject at {self.now_s:g} s: {strike.fault.name} ({strike.fault.kind}) on {where}")
        self.target.inject(strike)
        if math.isnan(self.injected_at_s):
            self.injected_at_s = self.now_s

    def _verify(self) -> None:
        for strike in self.begun:
            name = strike.fault.name
            if not self.proofs[name].happened and strike not in self.ended:
                self.proofs[name] = self.target.proof(strike)
                if self.proofs[name].happened:
                    self.say(f"verified at {self.now_s:g} s: {name}: {self.proofs[name].evidence}")

    def _watch(self) -> None:
        """End the drill if a guard is broken."""
        record = self.target.record() if self.plan.spec.abort_when else None
        for guard in self.plan.spec.abort_when:
            found = latest(record, guard) if record is not None else None
            if found is not None and found.holds is False:
                self.aborted = f"{guard.name}: {guard.metric} {found.text}"
                self.say(f"abort: {self.aborted}")

    def undo(self) -> None:
        """Undo every fault; ``go`` repeats it until it is confirmed, and the ledger stays open until then."""
        if not self.begun or not math.isnan(self.undone_at_s):
            return
        self.undone_at_s, self.undone = self.now_s, False
        self._try_undo()

    def _try_undo(self) -> None:
        before, self.tries = self.undo_told, self.tries + 1
        try:
            self.undone, self.undo_told = self.target.undo(tuple(self.begun))
        except SelvageError as error:
            self.undo_told = f"not confirmed: {error}"
        if self.undone:
            self.confirmed_at_s = self.now_s
            if self.tries > 1:
                self.undo_told += (
                    f", at try {self.tries}, {self.now_s - self.undone_at_s:g} s after the first"
                )
            self._close()
        if self.tries == 1 or self.undo_told != before:
            self.say(f"undo at {self.now_s:g} s: {self.undo_told}")

    def _close(self) -> None:
        try:
            self.ledger.close("undone")
        except OSError as error:  # the next start undoes again, without effect
            self.undo_told += f"; the note of it stays open: {error.strerror or error}"

    def result(self) -> DrillRun:
        """The data of the run so far."""
        return DrillRun(
            record=self.target.record(),
            faults=tuple(self._evidence(strike) for strike in self.begun),
            injected_at_s=self.injected_at_s,
            undone_at_s=self.undone_at_s,
            undone=self.undone,
            undo_told=self.undo_told,
            mended=self.mended,
            aborted=self.aborted,
            invalid=self.invalid,
            stopped=self.stopped,
        )

    def _evidence(self, strike: Strike) -> FaultEvidence:
        name = strike.fault.name
        return FaultEvidence(
            fault=name,
            kind=strike.fault.kind,
            replicas=strike.replicas,
            before=self.before[name],
            happened=self.proofs[name].happened,
            evidence=self.proofs[name].evidence,
        )
