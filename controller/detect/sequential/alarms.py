"""Compiled thresholds of the sequential detector: which streams of one subject raise an alarm.

Arguments named as fields of ``Streams`` are those of one subject, without the axes of fleets and subjects.
"""

from __future__ import annotations

import math

import numpy as np

from contracts.jit import borrowed, compiled
from controller.detect.clauses import Kind
from controller.detect.sequential.evidence import BETS, LEVEL, SINCE_COUNT, SINCE_SUM
from controller.detect.sequential.standing import stands
from controller.detect.streams.protocol import reaches

#: Evidence since a subject drifted, from which it is against its kernel together with a subject in alarm.
LEANS = 2.0
#: Codes for a kernel that is broken on no slice, or on more than one.
NOWHERE, SEVERAL = -1, -2
_BETTING = int(Kind.BETTING)


@compiled(inline="always")
def raise_alarms(raised, subject, news, u, peers, levels, plan):
    """Into ``raised`` [S, C], False before: streams of subject ``u`` that reach their threshold now.

    True if any does. subject: its ``Streams``; news: bool [S]; peers: place of the thresholds for its number
    of peers.
    """
    slices, clauses = raised.shape
    watched = subject.over_slices.shape[0] > 0
    some_over = watched and _largest_level(subject.over_slices[0]) >= levels.least
    was_raised, leans = False, some_over and _some_reach(subject.over_slices[0], levels.against[0])
    for s in range(slices):
        if not (news[s] or leans or _some_against(subject.against, s)):
            continue  # unchanged since the last tick, when no evidence was against the clauses
        some = _largest_level(subject.cells[s]) >= levels.least
        _weigh_against(subject, s, some or leans, levels)
        if news[s]:
            was_raised |= _raise_on(raised, subject, u, s, peers, some, levels, plan)
    if not watched:
        broken = _broken(raised, subject.alarm, levels.lowered)
        was_raised |= _raise_elsewhere(raised, subject.cells, levels.lowered, broken)
    for c in range(clauses if some_over else 0):
        if reaches(subject.over_slices[0, c, LEVEL], levels.over_slices[peers, u, c]):
            raised[_largest(subject.cells, c, plan.applies), c], was_raised = True, True
    return was_raised


@compiled
def _largest_level(cells):
    """Largest evidence of ``cells`` [C, W]; for most rows it is below every threshold."""
    most = 0.0
    for c in range(cells.shape[0]):
        most = max(most, cells[c, LEVEL])
    return most


@compiled
def _some_reach(cells, threshold):
    """Whether the evidence of any of ``cells`` [C, W] reaches a threshold."""
    some = False
    for c in range(cells.shape[0]):
        some |= reaches(cells[c, LEVEL], threshold)
    return some


@compiled(inline="always")
def _some_against(against, s):
    """Whether evidence is against any clause on slice ``s`` of a subject."""
    some = False
    for c in range(against.shape[1]):
        some |= against[s, c]
    return some


@compiled(inline="always")
def _weigh_against(subject, s, some, levels):
    """Update ``against`` on slice ``s`` of a subject, by evidence of the slice or pooled over slices.

    All False unless ``some`` evidence is large enough.
    """
    watched = subject.over_slices.shape[0] > 0
    for c in range(subject.against.shape[1]):
        subject.against[s, c] = False
        if some:
            level = subject.cells[s, c, LEVEL]
            most = max(level, subject.over_slices[0, c, LEVEL]) if watched else level
            subject.against[s, c] = reaches(most, levels.against[0])


@compiled(inline="always")
def _raise_on(raised, subject, u, s, peers, some, levels, plan):
    """Raise alarms on slice ``s`` of subject ``u``; its evidence is read only if ``some`` is large."""
    was_raised = False
    for c in range(raised.shape[1] if some else 0):
        raised[s, c] = reaches(subject.cells[s, c, LEVEL], levels.by_slice[peers, u, s, c])
    for c in levels.at_once:
        raised[s, c] |= subject.cells[s, c, SINCE_SUM] > 0.0
    for c in levels.standing:
        if subject.standing_s[s, c] >= levels.standing_after_s[c]:  # rare; passing the records is slow
            raised[s, c] |= stands(subject, s, c, levels, plan)
    for c in range(raised.shape[1]):
        was_raised |= raised[s, c]
    return was_raised


@compiled
def _broken(raised, alarm, lowered):
    """The slice on which a kernel is broken, raised or in alarm; ``NOWHERE`` or ``SEVERAL``."""
    broken = NOWHERE
    for s in range(raised.shape[0]):
        for c in range(raised.shape[1]):
            if (raised[s, c] or alarm[s, c]) and lowered[s, c].log < np.inf:
                broken = _also(broken, s)
    return broken


@compiled
def _also(broken, s):
    """Update ``broken`` with slice ``s``: ``SEVERAL`` if another slice is broken already."""
    return s if broken in (NOWHERE, s) else SEVERAL


@compiled
def _raise_elsewhere(raised, cells, lowered, broken):
    """Raise streams at lowered thresholds on every slice except the ``broken`` one; True if any is raised."""
    was_raised = False
    for s in range(raised.shape[0]):
        if broken in (NOWHERE, s):
            continue
        for c in range(raised.shape[1]):
            raised[s, c] |= reaches(cells[s, c, LEVEL], lowered[s, c])
            was_raised |= raised[s, c]
    return was_raised


@compiled
def raise_drifted(raised, subject, lowered, plan):
    """Raise streams of a drifted subject whose e-process reaches its threshold; the e-process is spent then.

    A subject with evidence of ``LEANS`` since its drift counts as against the clause long before an alarm, so
    that peers that drifted as well do not depart from it.
    """
    was_raised, watched = False, subject.over_slices.shape[0] > 0
    evidence, whole = subject.prior_evidence, subject.prior_evidence_over_slices[0]
    for c in range(raised.shape[1]):
        least, total, weights = np.inf, 0.0, plan.clauses[c].weights
        for g in range(BETS):
            total += weights[g] * whole[c, g]
        for s in range(raised.shape[0]):
            level = 0.0
            for g in range(BETS):
                level += weights[g] * evidence[s, c, g]
            if reaches(level, lowered[s, c]):
                raised[s, c], was_raised = True, True
                evidence[s, c] = 0.0
            least = min(least, lowered[s, c].log)
            subject.against[s, c] |= max(level, total if watched else 0.0) >= LEANS
        if watched and least < np.inf and np.log(max(total, 1e-300)) >= least:
            raised[_largest(subject.cells, c, plan.applies), c], was_raised = True, True
            whole[c] = 0.0
    return was_raised


@compiled
def _largest(cells, c, applies):
    """The first slice on which the clause's own evidence is largest."""
    best, place = -np.inf, 0
    for s in range(cells.shape[0]):
        if applies[c, s] and cells[s, c, LEVEL] > best:
            best, place = cells[s, c, LEVEL], s
    return place


@compiled
def restart_evidence(raised, subject, scale, plan):
    """Restart the evidence of raised streams, against and for the clause, and store their excess."""
    subject, plan = borrowed(subject), borrowed(plan)
    watched = subject.over_slices.shape[0] > 0
    for c in range(raised.shape[1]):
        was_raised, clause = False, plan.clauses[c]
        for s in range(raised.shape[0]):
            if not raised[s, c]:
                continue
            was_raised = True
            excess = _excess(subject.cells[s, c], clause, scale[c])
            if watched:
                excess = max(excess, _excess(subject.over_slices[0, c], clause, scale[c]))
            subject.excess[s, c] = excess
            subject.cells[s, c, :] = 0.0
            subject.health[s, c, :] = 1.0
            subject.standing_s[s, c] = 0.0
            subject.standing_counts[s, c, :] = 0.0
        if was_raised and watched:
            subject.over_slices[0, c, :] = 0.0


@compiled
def _excess(cell, clause, scale):
    """Excess of the observations since the likely change beyond the limit, as a share of it."""
    null = clause.null_mean if clause.kind == _BETTING else 0.0
    return max(cell[SINCE_SUM] / max(cell[SINCE_COUNT], 1.0) - null, 0.0) / scale


@compiled
def nearest_alarm(ratio, cells, alarm, hidden, kernel, lowered, moves):
    """Into ``ratio`` [B, K, S]: the largest share of its threshold that a clause of ``moves`` [C] reached.

    In alarm: 1 plus the share since the alarm. cells: [B, K, S, C, W]; alarm: bool [B, K, S, C], False where
    evidence is ``hidden`` bool [B, K, S, C]. Thresholds of log-evidence: kernel [K, S, C]; lowered [S, C],
    while a probe clause of the kernel is in alarm on another slice.
    """
    fleets, kernels, slices, clauses = alarm.shape
    for b in range(fleets):
        for k in range(kernels):
            broken = NOWHERE
            for s in range(slices):
                for c in range(clauses):
                    if alarm[b, k, s, c] and lowered[s, c] < np.inf:
                        broken = _also(broken, s)
            for s in range(slices):
                most, proven = 0.0, broken not in (NOWHERE, s)
                for c in range(clauses):
                    if not moves[c] or hidden[b, k, s, c]:
                        continue
                    share, level = 0.0, cells[b, k, s, c, LEVEL]
                    if level > 1.0:
                        least = min(kernel[k, s, c], lowered[s, c]) if proven else kernel[k, s, c]
                        share = min(math.log(level) / least, 1.0)
                    most = max(most, 1.0 + share if alarm[b, k, s, c] else share)
                ratio[b, k, s] = most
