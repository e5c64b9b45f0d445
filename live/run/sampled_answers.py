"""Users' sampled log-probabilities as observations of the contract's clauses, in addition to probes.

An answer becomes 0 or 1: inside or outside the limits of its kernel's past on that slice
(``live.observe.past``). Until a past is complete, answers are learned and are no evidence. A replica gives at
most as many observations as the budget of false switches assumes; further answers are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from contracts.compiled.contract import FleetLayout
from contracts.errors import refusal
from contracts.metrics.generation import PASSIVE_COLUMNS, surprise_outside
from contracts.telemetry import ProbeOutcome, ProbeSamples
from contracts.units import MS_PER_S
from controller.fleet import FleetSetup
from live.control.loop import Turn, TurnWatcher
from live.control.source import ProbeStep
from live.observe.past import BuildOnSlice, SurprisePasts, read_pasts
from live.observe.sampled import SampledAnswer, SampledInbox
from live.probe.prober import Prober
from live.run.inbox import serve_inbox

#: Prompt number of users' answers in the telemetry record, above those of golden and generation prompts.
USERS_NUMBER = 2_000_000
#: Most answers that a replica may save up, so that the answers of one post are not all dropped.
_BURST = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """The probes with users' answers, further watchers of turns, and notes to print."""

    probes: ProbeStep
    watchers: tuple[TurnWatcher, ...] = ()
    notes: tuple[str, ...] = ()


@contextmanager
def sampled(fleet: FleetSetup, prober: Prober, folder: Path, port: int | None) -> Iterator[Sampled]:
    """``prober``; and, if the operator enables it by ``port`` (0: any free one), users' answers as well.

    Raises DocumentError if no clause of the contract reads them, LiveError if the port is taken.
    """
    layout = fleet.layout
    asked = PASSIVE_COLUMNS[0] in layout.probe_metrics
    if port is None:
        message = "sampled log-probabilities, which a clause asks for, are not accepted: --sampled-port"
        yield Sampled(probes=prober, notes=(message,) if asked else ())
        return
    if not asked:
        hint = "add a clause on surprise_outside_rate to the contract (docs/live.md), or leave the option out"
        raise refusal("selvage run", "a clause that reads it", "none", hint, path="--sampled-port")
    inbox = SampledInbox(frozenset(layout.replicas), frozenset(layout.slices))
    one = Sampling(
        layout,
        prober,
        inbox,
        folder / "sampled-past.json",
        lambda: prober.stated,
        fleet.rates.probes_per_s,
    )
    with serve_inbox(inbox, port) as url:
        yield Sampled(probes=one, watchers=(one,), notes=(f"takes sampled log-probabilities at {url}",))


class Sampling:
    """``ProbeStep`` that adds users' answers to the results of ``prober``; ``TurnWatcher`` that sees alarms.

    fingerprints: replica -> fingerprint of its build; missing or "": unknown.
    """

    def __init__(
        self,
        layout: FleetLayout,
        prober: ProbeStep,
        inbox: SampledInbox,
        file: Path,
        fingerprints: Callable[[], dict[str, str]],
        answers_per_s: float,
    ) -> None:
        """``file``: where pasts are kept; ``answers_per_s``: most answers per s of a replica that
        are used.
        """
        self._layout, self._prober, self._inbox = layout, prober, inbox
        self._file, self._fingerprints, self._rate = file, fingerprints, answers_per_s
        self._pasts: SurprisePasts = read_pasts(file)
        self._saved = np.full(len(layout.replicas), _BURST)
        self._at_s = math.nan
        #: bool [R, S]: healthy, so that a past may be learned.
        self._well = np.zeros((len(layout.replicas), len(layout.slices)), dtype=np.bool_)

    def step(self, now_s: float) -> ProbeSamples:
        """The prober's results, and users' answers since the last call."""
        found = self._prober.step(now_s)
        rows = [row for answer in self._paced(now_s) if (row := self._judged(answer)) is not None]
        return joined(found, self._samples(rows)) if rows else found

    def turn(self, turn: Turn) -> None:
        """Note where a past may be learned: probed, no clause in alarm, the replica in rotation."""
        if turn.decision is None:
            return
        judged = turn.decision.judgement
        well = (judged.evidence_count[0] > 0.0) & ~judged.alarm[0].any(axis=2)  # [K, S]
        self._well = well[self._layout.replica_kernel] & ~turn.decision.quarantined[0][:, None]

    def _paced(self, now_s: float) -> list[SampledAnswer]:
        """Answers within the rate limit; the others are dropped."""
        passed_s = 0.0 if math.isnan(self._at_s) else max(0.0, now_s - self._at_s)
        self._at_s = now_s
        self._saved = np.minimum(self._saved + passed_s * self._rate, _BURST)
        kept = []
        for answer in self._inbox.drain():
            r = self._layout.replicas.index(answer.replica)
            if self._saved[r] >= 1.0:
                self._saved[r] -= 1.0
                kept.append(answer)
        return kept

    def _judged(self, answer: SampledAnswer) -> tuple[SampledAnswer, float] | None:
        """The answer with 0 or 1; None while its past is being learned, or if its build is unknown."""
        r, s = self._layout.replicas.index(answer.replica), self._layout.slices.index(answer.slice)
        fingerprint = self._fingerprints().get(answer.replica, "")
        if not fingerprint:
            return None
        kernel = self._layout.kernels[int(self._layout.replica_kernel[r])]
        cell = BuildOnSlice(kernel, fingerprint, answer.slice)
        limits = self._pasts.limits(cell)
        if limits is not None:
            return answer, surprise_outside(answer.surprise_nats, *limits)
        if self._well[r, s] and self._pasts.learn(cell, answer.surprise_nats):
            with suppress(OSError):  # after a restart it is learned again
                self._pasts.write(self._file)
        return None

    def _samples(self, rows: list[tuple[SampledAnswer, float]]) -> ProbeSamples:
        layout, column = self._layout, PASSIVE_COLUMNS[0]
        values = np.full((1, len(rows), len(layout.probe_metrics)), np.nan)
        values[0, :, layout.probe_metrics.index(column)] = [outside for _, outside in rows]
        answers = [answer for answer, _ in rows]
        return ProbeSamples(
            replica=np.array([[layout.replicas.index(one.replica) for one in answers]], dtype=np.int64),
            slice=np.array([[layout.slices.index(one.slice) for one in answers]], dtype=np.int64),
            prompt=np.full((1, len(rows)), USERS_NUMBER, dtype=np.int64),
            sampled_at_ms=np.array([[one.arrived_at_s * MS_PER_S for one in answers]]),
            values=values,
            valid=np.ones((1, len(rows)), dtype=np.bool_),
            outcome=np.full((1, len(rows)), int(ProbeOutcome.NONE), dtype=np.int8),  # no probe was sent
            latency_ms=np.full((1, len(rows)), np.nan),
        )


def joined(first: ProbeSamples, second: ProbeSamples) -> ProbeSamples:
    """Both, one after the other."""
    names = [one.name for one in fields(ProbeSamples)]
    return ProbeSamples(
        **{name: np.concatenate([getattr(first, name), getattr(second, name)], axis=1) for name in names}
    )
