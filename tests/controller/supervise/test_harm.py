"""Harm while a policy drives: useful answers lost against the home table, and the handover to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from contracts.rng import stream
from controller.explain.tick import explain
from controller.initial import initial_state
from controller.loop import tick
from controller.supervise.harm import BLOCKS, count_harm, home_table, tolerated_late, useful_loss
from controller.supervise.meta import HARM
from controller.supervise.own_moves_records import Block
from tests.support.fleets.swinging import FLEET, HOME, LAYOUT, OTHER, Swinging, watched
from tests.support.fleets.worlds import run, script

SETUP = watched(Swinging(period_s=1e9))
KERNELS, SLICES, _ = LAYOUT.shape


def reading(useful: float, blanks: Sequence[int] = (), **changes: Any) -> float:
    """The reading after forty blocks away from home, a share ``useful`` of whose answers was useful.

    In the ``blanks`` among them nothing ended.
    """
    away = np.zeros((1, SLICES, KERNELS + 1))
    away[:, :, OTHER] = 1.0
    known: dict[str, Any] = {
        "table": away,
        "certified": np.ones((1, KERNELS, SLICES), dtype=np.bool_),
        "hard_violated": np.zeros((1, KERNELS, SLICES), dtype=np.bool_),
        "least_rps": np.full((1, KERNELS), 100.0),
    } | changes
    after: Any = SimpleNamespace(offered_rps=np.full((1, SLICES), 10.0), **known)
    seen: Any = SimpleNamespace(now_s=np.zeros(1), ready=np.full((1, KERNELS), 4), **known)
    ended = np.zeros((1, SLICES, KERNELS))
    ended[:, :, OTHER] = 50.0
    told = Block(np.ones(1, dtype=np.bool_), ended, ended * (1.0 - useful), np.full(1, 5.0))
    empty = told._replace(ended=np.zeros_like(ended), bad=np.zeros_like(ended))
    memory: dict[str, Any] = {"missing": np.zeros((1, 3))}
    for place in range(40):
        memory = count_harm(memory, empty if place in blanks else told, after, seen, SETUP)
    return float(useful_loss(np.asarray(memory["missing"]))[0])


def test_the_reading_is_the_loss_against_the_home_table() -> None:
    """Home would surely have served all but the tolerated late share; two fifths came in time."""
    kept = 1.0 - tolerated_late(FLEET.contract).mean()
    assert reading(0.4) == pytest.approx(kept - 0.4)
    assert reading(1.0) == 0.0


def test_blocks_in_which_nothing_ended_do_not_count() -> None:
    """Every other block is empty, or the last twenty are: the reading is that of the others."""
    assert reading(0.4, range(0, 40, 2)) == pytest.approx(reading(0.4))
    assert reading(0.4, range(20, 40)) == pytest.approx(reading(0.4))


def test_where_home_would_not_have_served_there_is_no_harm() -> None:
    """A home in alarm, uncertified or without headroom proves no loss; nor does a table at home."""
    alarm, uncertified = np.zeros((2, 1, KERNELS, SLICES), dtype=np.bool_)
    alarm[:, HOME] = True
    assert reading(0.4, hard_violated=alarm) == 0.0
    assert reading(0.4, certified=uncertified) == 0.0
    assert reading(0.4, least_rps=np.full((1, KERNELS), 1.0)) == 0.0
    assert reading(0.4, table=home_table(FLEET, 1)) == 0.0


def test_answers_against_a_hard_clause_are_not_useful() -> None:
    """Answers in time that break a hard clause count as lost."""
    alarm = np.zeros((1, KERNELS, SLICES), dtype=np.bool_)
    alarm[:, OTHER] = True
    assert reading(1.0, hard_violated=alarm) > 0.5


def test_chance_alone_demotes_no_policy() -> None:
    """Differences around zero exceed half a percentage point in less than one reading in a thousand."""
    rng, missing, above = stream(5, "harm"), np.zeros((400, 3)), 0
    for look in range(300):
        value = rng.normal(0.0, 0.05, 400)
        newest = np.stack([np.ones(400), value, value * value], axis=1)
        missing = (1.0 - 1.0 / BLOCKS) * missing + newest
        above += int((useful_loss(missing) > 0.005).sum()) if look > 30 else 0
    assert above < 1e-3 * 400 * 269


def test_a_harmful_policy_hands_over_to_the_home_table() -> None:
    """In the next tick every slice moves home, whatever the baseline proposes, and the record says why."""
    setup = watched(Swinging(period_s=30.0, until_at_s=60.0))
    state = run(setup, script(LAYOUT, 50)).state
    assert (state.table[0, :, OTHER] == 1.0).all()
    harmed = {**state.supervisor, "missing": np.array([[BLOCKS, 0.5 * BLOCKS, 0.25 * BLOCKS]])}
    before = replace(state, supervisor=harmed)
    seen = list(script(LAYOUT, 51))[-1]
    after, decision = tick(before, seen, setup)
    assert decision.demoted[0]
    assert decision.demotion_reason[0] == HARM
    assert (decision.driven[0, :, HOME] == 1.0).all()
    assert explain(before, after, decision, setup).demotion_reason == "useful_loss_ratio"


def test_no_policy_is_judged_without_a_meta_contract() -> None:
    """Without one the memory stays empty."""
    setup = replace(SETUP, meta=None, baseline=None)
    state = initial_state(setup, 1)
    for seen in script(LAYOUT, 12):
        state, _ = tick(state, seen, setup)
    assert state.supervisor == {}
