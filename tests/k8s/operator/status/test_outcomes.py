"""Counts of what turns did."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from contracts.compiled.meta import POLICY_METRICS
from controller.shield.records import ShieldReason
from k8s.operator.status.outcomes import OUTCOMES, Tally
from k8s.process.metrics import LoopCounts, tally_metrics
from live.control.loop import Turn


def turn(reasons: tuple[int, ...] = (0, 0), *, demoted: bool = False, moved: bool = False) -> Turn:
    """A turn with the given bits of the shield's reasons, one number per slice."""
    decision = SimpleNamespace(
        shielded=SimpleNamespace(reason=np.array([reasons])),
        demoted=np.array([demoted]),
        demotion_reason=np.array([1 if demoted else -1]),
        held=np.array([False]),
        moved=np.array([moved]),
    )
    found: Any = cast(Any, None)
    return Turn(number=1, at_s=0.0, before=found, after=found, decision=cast(Any, decision))


def samples(tally: Tally) -> dict[tuple[str, ...], float]:
    """Name and labels of each sample -> value."""
    families = tally_metrics({"chat": tally})
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def test_every_turn_is_one_decision() -> None:
    """Every turn is counted once, and outcomes that did not occur are zero."""
    tally = Tally()
    for one in (turn(), turn(moved=True), turn()):
        tally.turned(one)
    tally.turned(Turn(number=4, at_s=0.0, before=cast(Any, None), after=cast(Any, None)))
    assert tally.decisions == {"moved": 1, "kept": 2, "held": 0, "unread": 1, "failed": 0}
    assert set(tally.decisions) == set(OUTCOMES)
    assert samples(tally)["selvage_decisions_total", "chat", "kept"] == 2


def test_interventions_are_counted_by_row_and_reason() -> None:
    """A row that the shield changed for two reasons counts for both, an unchanged row for none."""
    tally = Tally()
    tally.turned(turn((int(ShieldReason.HARD | ShieldReason.SLEW), 0)))
    tally.turned(turn((int(ShieldReason.HARD), int(ShieldReason.HARD))))
    assert +tally.interventions == {"hard": 3, "slew": 1}
    assert samples(tally)["selvage_shield_interventions_total", "chat", "hard"] == 3


def test_a_demotion_counts_once_with_its_reason() -> None:
    """A demotion counts when the baseline takes over, not while it drives or when a new leader finds it."""
    found, fresh = Tally(), Tally()
    found.turned(turn(demoted=True))
    assert not +found.demotions
    for demoted in (False, True, True, False, True):
        fresh.turned(turn(demoted=demoted))
    assert +fresh.demotions == {POLICY_METRICS[1]: 2}


def test_times_of_turns_are_a_histogram() -> None:
    """Each turn adds its time to the histogram; failed turns are counted separately."""
    counts = LoopCounts()
    counts.turned(0.02, failed=False)
    counts.turned(0.7, failed=True)
    (family,) = counts.tick_seconds.collect()
    found = {(one.name, one.labels.get("le", "")): one.value for one in family.samples}
    assert found["selvage_tick_seconds_bucket", "0.025"] == 1
    assert found["selvage_tick_seconds_count", ""] == 2
    assert (counts.turns, counts.failed_turns, counts.turn_s) == (2, 1, 0.7)
