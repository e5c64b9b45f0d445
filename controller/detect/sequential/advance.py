"""Compiled tick of the sequential detector. Fleets are independent; observations are in order of arrival.

``accumulate`` adds the observations to the evidence. This module has the steps after it: alarms, recovery and
memory. Only values that can change are read: evidence changes with observations; without them only decaying
sums decay and alarms expire. A tick is bound by memory access, so rows (slices of a subject) without
observations are skipped.

Functions that take records of arrays are inlined: passing the records costs a fifth of the tick.
"""

from __future__ import annotations

import numpy as np

from contracts.jit import borrowed, compiled
from controller.detect.sequential.accumulate import (
    Cells,
    ProbeBatch,
    accumulate_prior_evidence,
    accumulate_probes,
    accumulate_scrapes,
)
from controller.detect.sequential.alarms import raise_alarms, raise_drifted, restart_evidence
from controller.detect.sequential.evidence import HEALTHS
from controller.detect.sequential.peers import count_peers, note_scrapes, weigh_by_peers
from controller.detect.sequential.records import streams_of
from controller.detect.sequential.standing import note_standing
from controller.detect.sums import COUNT, OVER, SQUARES, TOTAL


@compiled
def advance(streams, batch, levels, alarms, plan):
    """One tick of every fleet: accumulate observations, raise alarms, test recovery, update memory.

    streams: ``Streams``, written to; batch: ``ArrivedObservations``; levels: ``Levels``; alarms:
    ``TickAlarms``, filled in; plan: ``EvidencePlan`` of the subjects.
    """
    streams, batch, alarms = borrowed(streams), borrowed(batch), borrowed(alarms)
    levels, plan = borrowed(levels), borrowed(plan)
    _, subjects, slices, clauses = streams.alarm.shape
    wanted, raised = np.empty((subjects, slices, clauses), np.bool_), np.zeros((slices, clauses), np.bool_)
    worth = np.ones((levels.owner.shape[0], slices + 1, clauses))
    peers = np.zeros(subjects, np.int64)
    for b in range(batch.sums.shape[0]):
        fleet = streams_of(streams, b)
        _find_tested(wanted, fleet.health, fleet.tested, fleet.alarm, batch.doubted[b])
        _accumulate(fleet, batch, b, wanted, worth, peers, levels, plan)
        for u in range(subjects):
            subject, news, sums = streams_of(fleet, u), batch.news[b, u], batch.sums[b, u]
            note_standing(subject, sums, news, batch.since_s[b], batch.blurred[b, u], levels, plan)
            was_raised = False
            if news.any() or _some(subject.alarm):
                was_raised = _raise(raised, subject, news, u, peers[u], levels, plan)
            inside, fresh = alarms.inside[b, u], alarms.fresh[b, u]
            _recover(raised, subject, sums, news, wanted[u], batch.since_s[b], inside, fresh, levels)
            if was_raised:
                raised[:] = False
            _remember(subject.recent, alarms.judged[b, u], sums, news, batch.kept[b])
            if levels.owner.shape[0]:
                note_scrapes(subject.latest, sums, news, batch.kept[b] * batch.kept[b], levels.compared)


@compiled
def _some(flags):
    """Whether any of ``flags`` [S, C] is True; faster than stopping at the first one."""
    some = False
    for s in range(flags.shape[0]):
        for c in range(flags.shape[1]):
            some |= flags[s, c]
    return some


@compiled(inline="always")
def _find_tested(wanted, health, tested, alarm, doubted):
    """Into ``wanted`` [U, S, C]: cells whose recovery is tested; elsewhere evidence of health is reset."""
    for u in range(wanted.shape[0]):
        for s in range(wanted.shape[1]):
            some = False
            for c in range(wanted.shape[2]):
                wanted[u, s, c] = False
                some |= alarm[u, s, c] | doubted[u, s, c] | tested[u, s, c]
            if not some:
                continue
            for c in range(wanted.shape[2]):
                unhealthy = alarm[u, s, c] or doubted[u, s, c]
                wanted[u, s, c] = unhealthy
                if tested[u, s, c] and not unhealthy:
                    for h in range(HEALTHS):
                        health[u, s, c, h] = 1.0
                tested[u, s, c] = unhealthy


@compiled(inline="always")
def _accumulate(fleet, batch, b, wanted, worth, peers, levels, plan):
    """Add the observations of fleet ``b`` to its ``Streams``; ``worth`` and ``peers`` are filled in."""
    cells = Cells(fleet.cells, fleet.over_slices, fleet.health, wanted)
    probes = ProbeBatch(
        batch.received[b], batch.replica[b], batch.slice[b], batch.values[b], batch.subject_of
    )
    sums, news = batch.sums[b], batch.news[b]
    accumulate_probes(cells, probes, plan)
    if levels.owner.shape[0]:
        weigh_by_peers(worth, sums, news, fleet.latest, levels.owner, plan)
        count_peers(peers, sums, news, fleet.latest, levels.owner, levels.traffic)
    accumulate_scrapes(cells, sums, news, worth, plan)
    if fleet.prior_evidence.shape[3] and _follow_drift(fleet, batch.drifted[b]):
        accumulate_prior_evidence(
            fleet.prior_evidence, fleet.prior_evidence_over_slices, fleet.prior_active, probes, plan
        )


@compiled(inline="always")
def _follow_drift(fleet, drifted):
    """Start e-processes of subjects that have ``drifted`` [U]; end those of all others."""
    some = False
    for u in range(drifted.shape[0]):
        if drifted[u] and not fleet.prior_active[u, 0, 0]:
            fleet.prior_evidence[u] = 1.0
            fleet.prior_evidence_over_slices[u] = 1.0
        fleet.prior_active[u, 0, 0] = drifted[u]
        some |= drifted[u]
    return some


@compiled(inline="always")
def _raise(raised, subject, news, u, peers, levels, plan):
    """Into ``raised`` [S, C]: streams of subject ``u`` that raise an alarm; returns whether any does.

    Their evidence starts anew.
    """
    place = min(max(peers, 1), levels.by_slice.shape[0]) - 1
    was_raised = raise_alarms(raised, subject, news, u, place, levels, plan)
    if subject.prior_evidence.shape[2] and subject.prior_active[0, 0]:
        was_raised |= raise_drifted(raised, subject, levels.lowered, plan)
    if was_raised:
        restart_evidence(raised, subject, levels.scale, plan)
    return was_raised


@compiled(inline="always")
def _is_busy(raised, subject, wanted, s):
    """Whether a clause on slice ``s`` of a subject raises an alarm, is in alarm or is tested for recovery."""
    busy = False
    for c in range(raised.shape[1]):
        busy |= raised[s, c] | wanted[s, c] | subject.alarm[s, c]
    return busy


@compiled(inline="always")
def _stay_quiet(subject, sums, news, fresh, expires, s, since_s):
    """A tick of slice ``s`` of a subject without clauses in alarm or tested for recovery: excess is 0."""
    if not news[s]:
        for c in range(expires.shape[0]):
            subject.silent_s[s, c] += since_s if expires[c] else 0.0
        return
    for c in range(expires.shape[0]):
        received = sums[s, c, COUNT] > 0.0
        silent_s = 0.0 if received else subject.silent_s[s, c] + since_s
        subject.silent_s[s, c] = silent_s if expires[c] else subject.silent_s[s, c]
        subject.excess[s, c], fresh[s, c] = 0.0, received


@compiled(inline="always")
def _recover(raised, subject, sums, news, wanted, since_s, inside, fresh, levels):
    """End alarms of one subject that recovered or expired, and update its ``alarm`` and ``excess``.

    ``inside`` and ``fresh`` [S, C] are False before.
    """
    for s in range(raised.shape[0]):
        if not _is_busy(raised, subject, wanted, s):
            _stay_quiet(subject, sums, news, fresh, levels.expires, s, since_s)
            continue
        for c in range(raised.shape[1]):
            received, expired, healthy = sums[s, c, COUNT] > 0.0, False, False
            if levels.expires[c]:
                subject.silent_s[s, c] = 0.0 if received else subject.silent_s[s, c] + since_s
            if wanted[s, c] and not raised[s, c]:
                total = 0.0
                for h in range(HEALTHS):
                    total += subject.health[s, c, h]
                expired = levels.expires[c] and subject.silent_s[s, c] >= levels.expiry_s
                healthy = expired or total / HEALTHS >= levels.returns
            if raised[s, c]:
                subject.alarm[s, c] = True
            elif healthy:
                subject.alarm[s, c] = False
            if not subject.alarm[s, c]:
                subject.excess[s, c] = 0.0
            inside[s, c] = healthy
            fresh[s, c] = received or raised[s, c] or expired


@compiled(inline="always")
def _remember(recent, judged, sums, news, kept):
    """Update the decaying sums of one subject; sums of less than one observation are not judged."""
    for s in range(recent.shape[0]):
        for c in range(recent.shape[1]):
            # Load four numbers at once, then store them, without a branch.
            count, total = recent[s, c, COUNT] * kept, recent[s, c, TOTAL] * kept
            squares, over = recent[s, c, SQUARES] * kept, recent[s, c, OVER] * kept
            if news[s]:
                added = 1.0 if sums[s, c, COUNT] > 0.0 else 0.0
                count, total = count + added * sums[s, c, COUNT], total + added * sums[s, c, TOTAL]
                squares, over = squares + added * sums[s, c, SQUARES], over + added * sums[s, c, OVER]
            recent[s, c, COUNT], recent[s, c, TOTAL] = count, total
            recent[s, c, SQUARES], recent[s, c, OVER] = squares, over
            share = 1.0 if count >= 1.0 else 0.0
            judged[s, c, COUNT], judged[s, c, TOTAL] = count * share, total * share
            judged[s, c, SQUARES], judged[s, c, OVER] = squares * share, over * share
