"""Alarms in a decision log that moved nothing: of clauses, and of passive signals.

Ticks with a move show the alarms behind it; these alarms would otherwise show only if their exact second is
requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from scripts.cli.run_reports.decision_log import Tick

#: Kernel, slice and clause.
Place = tuple[str, str, str]
#: Of instants that are compared.
SLACK_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietAlarm:
    """A clause that was in alarm on a kernel and slice without any move for it.

    times: how often it began; from_s, to_s: first and last tick of all of them, s of the log's clock.
    estimate, limit (None: not known), observations: at its last tick. open: whether the log ends with it.
    """

    clause_id: str
    kernel: str
    slice: str
    times: int
    from_s: float
    to_s: float
    estimate: float | None
    limit: float | None
    observations: float
    open: bool

    def line(self, instant: Callable[[float], str]) -> str:
        """Text for people; ``instant`` formats a second of the log."""
        often = "" if self.times == 1 else f", {self.times} times,"
        until = "on" if self.open else f"until {instant(self.to_s)}"
        when = f"from {instant(self.from_s)} {until}"
        return (
            f"alarm {self.clause_id} on {self.kernel}/{self.slice}{often} {when}: "
            f"{known(self.estimate)} against {known(self.limit)} from {self.observations:.0f} observations; "
            "nothing was moved for it"
        )


@dataclass(slots=True)
class _Spell:
    """An alarm from beginning to end. shown: a tick with a move shows it."""

    from_s: float
    to_s: float = 0.0
    evidence: Mapping[str, Any] = field(default_factory=dict)
    shown: bool = False
    open: bool = True

    def take(self, tick: Tick, name: str, evidence: Mapping[str, Any]) -> None:
        """It continues in ``tick`` on the slice ``name``."""
        self.to_s, self.evidence = tick["now_s"], evidence
        moved = {move["slice"] for move in tick["moves"]}
        self.shown |= moves_something(tick) and (not moved or name in moved)


def moves_something(tick: Tick) -> bool:
    """Whether the tick moved weight or removed a replica: such ticks are shown one by one."""
    return bool(tick["moves"]) or any(one["new"] for one in tick["quarantined"])


def quiet_alarms(ticks: Iterable[Tick]) -> tuple[QuietAlarm, ...]:
    """Alarms of clauses in ``ticks``, in their order, that no tick with a move shows; one for each kernel,
    slice and clause, by the time of the first.
    """
    spells: dict[Place, list[_Spell]] = {}
    for tick in ticks:
        present = {(one["kernel"], one["slice"], one["clause_id"]): one for one in tick["evidence"]}
        for place in spells.keys() - present.keys():
            spells[place][-1].open = False
        for place, evidence in present.items():
            _spell_of(spells.setdefault(place, []), tick["now_s"]).take(tick, place[1], evidence)
    return tuple(sorted(_quiet(spells), key=lambda one: (one.from_s, one.clause_id, one.kernel, one.slice)))


def _spell_of(spells: list[_Spell], now_s: float) -> _Spell:
    """The continuing one, else a new one."""
    if not spells or not spells[-1].open:
        spells.append(_Spell(now_s))
    return spells[-1]


def _quiet(spells: Mapping[Place, list[_Spell]]) -> Iterator[QuietAlarm]:
    for (kernel, name, clause_id), every in spells.items():
        own = [one for one in every if not one.shown]
        if own:
            last = own[-1]
            yield QuietAlarm(
                clause_id=clause_id,
                kernel=kernel,
                slice=name,
                times=len(own),
                from_s=own[0].from_s,
                to_s=last.to_s,
                estimate=last.evidence["estimate"],
                limit=last.evidence["limit"],
                observations=last.evidence["observations"],
                open=last.open,
            )


def known(value: float | None) -> str:
    """A number of a log; None if it is unknown."""
    return "what is not known" if value is None else f"{value:.4g}"


def in_force(told: Iterable[Tick], name: str, at_s: float) -> list[Tick]:
    """All events in ``told``, by replica and ``name``, that had begun and not ended at ``at_s``."""
    newest = {(one["replica"], one[name]): one for one in told if one["now_s"] <= at_s + SLACK_S}
    return [one for one in newest.values() if one["began"]]
