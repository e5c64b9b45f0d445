"""Recovery by identity: a subject whose probes equal their certified values is the certified build again.

The test that a mean is kept again has to allow for rare large values, so it takes hundreds of probes of a
slice. Where repeats are bit-exact, there is a faster test. A build whose certified values keep a clause keeps
it while it gives these values, and a fault shows as a share of probes that differ from them. So a subject in
alarm or condemned on a clause on probes is re-certified as soon as enough consecutive probes match. They must
reject, at the confidence of recovery, the hypothesis that the fault is still there:

- over all its probes: the share that differs is half of that during the fault, or a tenth
  (``certified_drift.DIFFERING_RATIO``) if that is less;
- over its probes on the slice: the share that differs is half of that during the fault on this slice.

A fault that shows in every probe takes 29 consecutive matches, five of them on the slice; a fault that shows
in fewer probes takes more. The run starts with the alarm, and any difference ends it. A kernel pools its
replicas in rotation, and they are re-certified together with it: a faulty one would end the kernel's run.

An intermittent fault is therefore re-certified in its pauses. Policies return traffic home slowly, and more
slowly each time (``policies.rules.hysteresis``), but traffic that fits nowhere else is not shed. For slices
that are shed, the bound of a tenth does not apply: a subject that differed in many of its probes returns as
soon as these show that the fault is no longer as it was (``as_certified_pass``), because waiting for proof
against rarer faults costs answers.
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
    """Clauses that matching probes re-certify; U subjects: the replicas, then the kernels."""

    #: [U, S, C], or [B, U, S, C] where fleets differ: clauses on probes that a matching subject keeps.
    kept: Flags
    rules: RunRules


def run_plan(fleet: CertifiedFleet, most_ratio: float, returns: float) -> CertifiedRuns | None:
    """Plan of the null "at least ``most_ratio`` of the probes differ", rejected by evidence ``returns``.

    None without certified values, or where repeats are not exact.
    """
    certified, owner = fleet.certified, fleet.layout.replica_kernel
    if certified is None or certified.repeat_noise > 0.0:
        return None
    kept = kept_when_certified(certified, fleet.contract)
    rules = RunRules(owner=owner, most_ratio=most_ratio, returns=math.log(returns))
    return CertifiedRuns(kept=np.concatenate([kept[owner], kept]), rules=rules)


def kept_when_certified(certified: CertifiedValues, contract: CompiledContract) -> Flags:
    """bool [K, S, C]: clauses on probes that each kernel's certified values keep on a slice's prompts.

    False without measured values.
    """
    sums = certified_sums(certified, contract)
    return np.asarray((sums[..., COUNT] > 0.0) & (excess_of_sums(sums, contract) <= 0.0))


def certified_sums(certified: CertifiedValues, contract: CompiledContract) -> Sums:
    """[K, S, C, 4], sums of the certified values of a slice's prompts for each clause on probes; else 0."""
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
    """Runs of the replicas, then of the kernels, before the first comparison."""
    return np.zeros((batch, subjects, slices + 1, RUN_COLUMNS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Subjects:
    """Replicas or kernels, with their alarms and the detector's memory."""

    alarms: AlarmState
    memory: DetectorState
    was_alarm: Flags  #: [B, U, S, C], in alarm before this tick
    doubted: Flags  #: [B, U, S, C], condemned so far

    def unhealthy(self) -> Flags:
        """bool [B, U, S, C]: in alarm, or condemned."""
        either: Flags = np.logical_or(self.alarms.alarm, self.doubted)
        return either

    def recoverable(self, kept: Flags) -> Flags:
        """bool [B, U, S, C]: unhealthy on a clause that matching probes re-certify.

        kept: these clauses, bool [U, S, C], or [B, U, S, C] where fleets differ.
        """
        return np.asarray(self.unhealthy() & kept)

    def raised(self, kept: Flags) -> Flags:
        """bool [B, U, S]: in alarm on a clause of ``kept`` since this tick."""
        return some_within(self.alarms.alarm & ~self.was_alarm & kept)

    def without(self, back: Flags, detector: Detector) -> Subjects:
        """Subjects whose clauses ``back`` [B, U, S, C] are kept again, and judged so in this tick."""
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


def readmit_matching(
    replicas: Subjects,
    kernels: Subjects,
    awaited: AwaitedReturns,
    runs: Floats,
    known: CertifiedRuns,
    detector: Detector,
) -> tuple[Subjects, Subjects]:
    """Replicas and kernels, without alarms and condemnation where probes show recovery.

    runs: those in the memory; they are reset where an alarm is raised.
    """
    count = awaited.in_rotation.shape[1]
    kept = known.kept[..., :count, :, :], known.kept[..., count:, :, :]
    recoverable = replicas.recoverable(kept[0]), kernels.recoverable(kept[1])
    if not (bool(recoverable[0].any()) or bool(recoverable[1].any())):
        return replicas, kernels
    raised = np.concatenate([replicas.raised(kept[0]), kernels.raised(kept[1])], axis=1)
    runs[..., :-1, RUN][raised] = 0.0
    runs[..., -1, RUN][raised.any(axis=2)] = 0.0
    again = np.empty(raised.shape, dtype=np.bool_)
    find_again(again, runs, tuple(awaited), tuple(known.rules))
    with_kernel = again[:, count:][:, known.rules.owner] & awaited.in_rotation[:, :, None]
    own = again[:, :count] | (with_kernel & (runs[:, :count, -1:, RUN] > 0.0))
    return (
        replicas.without(recoverable[0] & own[..., None], detector),
        kernels.without(recoverable[1] & again[:, count:, :, None], detector),
    )
