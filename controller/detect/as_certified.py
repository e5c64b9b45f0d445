"""Recovery by identity: who gives what was certified, probe by probe, is what was certified.

The test that a mean is kept again has to allow for rare large values, so it takes hundreds of probes of a
slice. Where repeats are bit-exact there is a shorter way. A build whose certified values keep a clause keeps
it while it gives these values, and a fault shows in the share of its probes that differ from them. So a
clause on probes that a subject is in alarm for, or condemned for, is kept again as soon as its probes match
in a row often enough to reject, at the confidence of recovery, that the fault is still there:

- of all its probes: that half of the share differs which differed while it was ill, or a tenth
  (``certified_drift.DIFFERING_RATIO``) where that is less;
- of those on the slice: that half of the share differs that differed there.

So a fault that shows in every probe takes 29 matches in a row, five of them on the slice, and one that shows
in few of them as many more. The run begins with the alarm; any difference ends it. A kernel pools its
replicas in rotation, and they come back with it: one that is still ill would end its run.

A fault that comes and goes is so let in by its pauses, as far as the fleet is short: policies go home slowly,
and ever more so (``policies.rules.hysteresis``), but what fits nowhere else is not shed for it. Of what is
shed the cap of a tenth does not hold: who was ill by many of its own probes is back as soon as these say that
the illness is not as it was (``as_certified_pass``), because to wait for proof of rarer ones costs answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from contracts.compiled.certified import CertifiedValues
from contracts.compiled.contract import CompiledContract
from contracts.telemetry import Source
from controller.cells import some_within
from controller.detect.as_certified_pass import RUN, RUN_COLUMNS, AwaitedReturns, RunRules, find_again
from controller.detect.clauses import applies
from controller.detect.detector import AlarmState, CertifiedFleet, Detector, DetectorState
from controller.detect.streams.protocol import Flags, Floats
from controller.detect.sums import COUNT, OVER, SQUARES, TOTAL, Sums, excess_of_sums


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CertifiedRuns:
    """Who is let in when its probes match; U subjects: the replicas, then the kernels."""

    #: [U, S, C], or [B, U, S, C] where fleets differ: clauses on probes that who matches keeps.
    kept: Flags
    rules: RunRules


def run_plan(fleet: CertifiedFleet, most_ratio: float, returns: float) -> CertifiedRuns | None:
    """Plan of the null "at least ``most_ratio`` of the probes differ", rejected by evidence ``returns``; None
    where nothing was certified or repeats are not exact.
    """
    certified, owner = fleet.certified, fleet.layout.replica_kernel
    if certified is None or certified.repeat_noise > 0.0:
        return None
    kept = kept_when_certified(certified, fleet.contract)
    rules = RunRules(owner=owner, most_ratio=most_ratio, returns=math.log(returns))
    return CertifiedRuns(kept=np.concatenate([kept[owner], kept]), rules=rules)


def kept_when_certified(certified: CertifiedValues, contract: CompiledContract) -> Flags:
    """bool [K, S, C]: clauses on probes that each kernel's certified values keep on a slice's prompts.

    Nothing measured keeps nothing.
    """
    sums = certified_sums(certified, contract)
    return np.asarray((sums[..., COUNT] > 0.0) & (excess_of_sums(sums, contract) <= 0.0))


def certified_sums(certified: CertifiedValues, contract: CompiledContract) -> Sums:
    """[K, S, C, 4], of the certified values of a slice's prompts, for each clause on probes; elsewhere 0."""
    slices, clauses = applies(contract).shape
    sums = np.zeros((certified.values.shape[0], slices, clauses, 4))
    for s, c in np.argwhere(applies(contract) & (contract.source == Source.PROBE)):
        values = certified.values[..., contract.column[c]][:, certified.slice == s]
        measured = np.isfinite(values)
        clipped = np.where(measured, np.minimum(values, contract.clip[c]), 0.0)
        over = measured & (contract.sense[c] * (values - contract.threshold[c]) > 0.0)
        sums[:, s, c, COUNT] = measured.sum(axis=(1, 2))
        sums[:, s, c, TOTAL] = clipped.sum(axis=(1, 2))
        sums[:, s, c, SQUARES] = (clipped**2).sum(axis=(1, 2))
        sums[:, s, c, OVER] = over.sum(axis=(1, 2))
    return sums


def initial_runs(batch: int, subjects: int, slices: int) -> Floats:
    """Runs of the replicas, then the kernels: nothing compared yet."""
    return np.zeros((batch, subjects, slices + 1, RUN_COLUMNS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Subjects:
    """Replicas or kernels, and what is said of them."""

    alarms: AlarmState
    memory: DetectorState
    was_alarm: Flags  #: [B, U, S, C], in alarm before this tick
    doubted: Flags  #: [B, U, S, C], condemned so far

    def ill(self) -> Flags:
        """bool [B, U, S, C]: in alarm, or condemned."""
        either: Flags = np.logical_or(self.alarms.alarm, self.doubted)
        return either

    def told(self, kept: Flags) -> Flags:
        """bool [B, U, S, C]: ill by a clause that who matches keeps; ``kept`` [U, S, C], or of each fleet."""
        return np.asarray(self.ill() & kept)

    def raised(self, kept: Flags) -> Flags:
        """bool [B, U, S]: fallen ill by such a clause in this tick."""
        return some_within(self.alarms.alarm & ~self.was_alarm & kept)

    def without(self, back: Flags, detector: Detector) -> Subjects:
        """The same, but for what is ``back`` [B, U, S, C]: kept, and judged so in this tick."""
        if not bool(back.any()):
            return self
        alarms = replace(
            self.alarms,
            alarm=self.alarms.alarm & ~back,
            excess=np.where(back, 0.0, self.alarms.excess),
            inside=self.alarms.inside | back,
            fresh=self.alarms.fresh | back,
            against=None if self.alarms.against is None else self.alarms.against & ~back,
        )
        return replace(self, alarms=alarms, memory=detector.forget(self.memory, back))


def let_in_again(
    replicas: Subjects,
    kernels: Subjects,
    awaited: AwaitedReturns,
    runs: Floats,
    known: CertifiedRuns,
    detector: Detector,
) -> tuple[Subjects, Subjects]:
    """Both without those who are as certified again; runs: of the memory, written to where an alarm is
    raised.
    """
    count = awaited.in_rotation.shape[1]
    kept = known.kept[..., :count, :, :], known.kept[..., count:, :, :]
    told = replicas.told(kept[0]), kernels.told(kept[1])
    if not (bool(told[0].any()) or bool(told[1].any())):
        return replicas, kernels
    raised = np.concatenate([replicas.raised(kept[0]), kernels.raised(kept[1])], axis=1)
    runs[..., :-1, RUN][raised] = 0.0
    runs[..., -1, RUN][raised.any(axis=2)] = 0.0
    again = np.empty(raised.shape, dtype=np.bool_)
    find_again(again, runs, tuple(awaited), tuple(known.rules))
    together = again[:, count:][:, known.rules.owner] & awaited.in_rotation[:, :, None]
    mine = again[:, :count] | (together & (runs[:, :count, -1:, RUN] > 0.0))
    return (
        replicas.without(told[0] & mine[..., None], detector),
        kernels.without(told[1] & again[:, count:, :, None], detector),
    )
