"""Compiled tick of the sequential detector; each fleet by itself, observations in their order of arrival.

``accumulate`` takes the observations in; here is what follows it: alarms, recovery, memory. Only what can
change is looked at: evidence changes where observations came, and without them only a fading sum fades and an
alarm expires. Most of a tick is waiting for memory, so rows (slices of a subject) without news are passed
over, and sums that nothing was ever added to stay as they are.

What takes records of arrays is inlined: to hand them over costs a fifth of the tick.
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
from controller.detect.sequential.alarms import begin_anew, raise_alarms, raise_drifted
from controller.detect.sequential.evidence import HEALTHS
from controller.detect.sequential.peers import count_peers, note_scrapes, weigh_by_peers
from controller.detect.sequential.records import streams_of
from controller.detect.sequential.standing import note_standing
from controller.detect.sums import COUNT, OVER, SQUARES, TOTAL


@compiled
def advance(streams, batch, levels, alarms, plan):
    """One tick of every fleet: accumulate what arrived, raise alarms, recover, remember.

    streams: ``Streams``, written to; batch: ``Arrived``; levels: ``Levels``; alarms: ``TickAlarms``, filled
    in; plan: ``EvidencePlan`` of the subjects.
    """
    streams, batch, alarms = borrowed(streams), borrowed(batch), borrowed(alarms)
    levels, plan = borrowed(levels), borrowed(plan)
    _, subjects, slices, clauses = streams.alarm.shape
    wanted, raised = np.empty((subjects, slices, clauses), np.bool_), np.zeros((slices, clauses), np.bool_)
    worth = np.ones((levels.owner.shape[0], slices + 1, clauses))
    peers = np.zeros(subjects, np.int64)
    for b in range(batch.sums.shape[0]):
        fleet = streams_of(streams, b)
        _want(wanted, fleet.health, fleet.tested, fleet.alarm, batch.doubted[b])
        _accumulate(fleet, batch, b, wanted, worth, peers, levels, plan)
        for u in range(subjects):
            one, news, sums = streams_of(fleet, u), batch.news[b, u], batch.sums[b, u]
            note_standing(one, sums, news, batch.since_s[b], batch.blurred[b, u], levels, plan)
            was_raised = False
            if news.any() or _some(one.alarm):
                was_raised = _raise(raised, one, news, u, peers[u], levels, plan)
            inside, fresh = alarms.inside[b, u], alarms.fresh[b, u]
            _recover(raised, one, sums, news, wanted[u], batch.since_s[b], inside, fresh, levels)
            if was_raised:
                raised[:] = False
            _remember(one.recent, alarms.judged[b, u], sums, news, batch.kept[b])
            if levels.owner.shape[0]:
                note_scrapes(one.latest, sums, news, batch.kept[b] * batch.kept[b], levels.compared)


@compiled
def _some(flags):
    """Any of ``flags`` [S, C] holds; faster than to stop at the first."""
    found = False
    for s in range(flags.shape[0]):
        for c in range(flags.shape[1]):
            found |= flags[s, c]
    return found


@compiled(inline="always")
def _want(wanted, health, tested, alarm, doubted):
    """Where evidence of health is wanted, into ``wanted`` [U, S, C]; elsewhere there is none."""
    for u in range(wanted.shape[0]):
        for s in range(wanted.shape[1]):
            some = False
            for c in range(wanted.shape[2]):
                wanted[u, s, c] = False
                some |= alarm[u, s, c] | doubted[u, s, c] | tested[u, s, c]
            if not some:
                continue
            for c in range(wanted.shape[2]):
                asked = alarm[u, s, c] or doubted[u, s, c]
                wanted[u, s, c] = asked
                if tested[u, s, c] and not asked:
                    for h in range(HEALTHS):
                        health[u, s, c, h] = 1.0
                tested[u, s, c] = asked


@compiled(inline="always")
def _accumulate(fleet, batch, b, wanted, worth, peers, levels, plan):
    """What arrived for fleet ``b``, into its ``Streams``; ``worth`` and ``peers`` as ``peers`` fills them."""
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
    """Begin e-processes of subjects that have ``drifted`` [U]; end those of all others."""
    some = False
    for u in range(drifted.shape[0]):
        if drifted[u] and not fleet.prior_active[u, 0, 0]:
            fleet.prior_evidence[u] = 1.0
            fleet.prior_evidence_over_slices[u] = 1.0
        fleet.prior_active[u, 0, 0] = drifted[u]
        some |= drifted[u]
    return some


@compiled(inline="always")
def _raise(raised, one, news, u, peers, levels, plan):
    """Into ``raised`` [S, C]: streams of subject ``u`` that raise an alarm; whether any does. Their evidence
    is spent.
    """
    place = min(max(peers, 1), levels.by_slice.shape[0]) - 1
    was_raised = raise_alarms(raised, one, news, u, place, levels, plan)
    if one.prior_evidence.shape[2] and one.prior_active[0, 0]:
        was_raised |= raise_drifted(raised, one, levels.lowered, plan)
    if was_raised:
        begin_anew(raised, one, levels.scale, plan)
    return was_raised


@compiled(inline="always")
def _is_busy(raised, one, wanted, s):
    """Some clause on slice ``s`` of a subject raises an alarm, is in alarm or is asked for health."""
    busy = False
    for c in range(raised.shape[1]):
        busy |= raised[s, c] | wanted[s, c] | one.alarm[s, c]
    return busy


@compiled(inline="always")
def _stay_quiet(one, sums, news, fresh, expires, s, since_s):
    """A tick of slice ``s`` of a subject, no clause of which is in alarm or asked for health: excess is 0."""
    if not news[s]:
        for c in range(expires.shape[0]):
            one.silent_s[s, c] += since_s if expires[c] else 0.0
        return
    for c in range(expires.shape[0]):
        received = sums[s, c, COUNT] > 0.0
        silent_s = 0.0 if received else one.silent_s[s, c] + since_s
        one.silent_s[s, c] = silent_s if expires[c] else one.silent_s[s, c]
        one.excess[s, c], fresh[s, c] = 0.0, received


@compiled(inline="always")
def _recover(raised, one, sums, news, wanted, since_s, inside, fresh, levels):
    """What ends an alarm, of one subject; its ``alarm`` and ``excess`` become this tick's.

    ``inside`` and ``fresh`` [S, C] are False so far.
    """
    for s in range(raised.shape[0]):
        if not _is_busy(raised, one, wanted, s):
            _stay_quiet(one, sums, news, fresh, levels.expires, s, since_s)
            continue
        for c in range(raised.shape[1]):
            received, expired, healthy = sums[s, c, COUNT] > 0.0, False, False
            if levels.expires[c]:
                one.silent_s[s, c] = 0.0 if received else one.silent_s[s, c] + since_s
            if wanted[s, c] and not raised[s, c]:
                total = 0.0
                for h in range(HEALTHS):
                    total += one.health[s, c, h]
                expired = levels.expires[c] and one.silent_s[s, c] >= levels.expiry_s
                healthy = expired or total / HEALTHS >= levels.returns
            if raised[s, c]:
                one.alarm[s, c] = True
            elif healthy:
                one.alarm[s, c] = False
            if not one.alarm[s, c]:
                one.excess[s, c] = 0.0
            inside[s, c] = healthy
            fresh[s, c] = received or raised[s, c] or expired


@compiled(inline="always")
def _remember(recent, judged, sums, news, kept):
    """Sums of one subject fade and grow; what amounts to less than one observation judges nothing."""
    for s in range(recent.shape[0]):
        for c in range(recent.shape[1]):
            # Four numbers at once, loaded, then stored, and without a branch.
            count, total = recent[s, c, COUNT] * kept, recent[s, c, TOTAL] * kept
            squares, over = recent[s, c, SQUARES] * kept, recent[s, c, OVER] * kept
            if news[s]:
                came = 1.0 if sums[s, c, COUNT] > 0.0 else 0.0
                count, total = count + came * sums[s, c, COUNT], total + came * sums[s, c, TOTAL]
                squares, over = squares + came * sums[s, c, SQUARES], over + came * sums[s, c, OVER]
            recent[s, c, COUNT], recent[s, c, TOTAL] = count, total
            recent[s, c, SQUARES], recent[s, c, OVER] = squares, over
            share = 1.0 if count >= 1.0 else 0.0
            judged[s, c, COUNT], judged[s, c, TOTAL] = count * share, total * share
            judged[s, c, SQUARES], judged[s, c, OVER] = squares * share, over * share
