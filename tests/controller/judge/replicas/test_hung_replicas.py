"""What is no hang although replicas stand still, and what becomes of replicas whose hang is over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.telemetry import FleetTelemetry, ProbeOutcome
from controller.detect.sums import OVER
from controller.judge.replicas.hang import FULL_RATIO, waits_for_blocks
from controller.options import ControllerOptions
from controller.state import QuarantineReason
from policies.registry import make_configuration
from tests.support.fleets.builders import make_fleet, make_layout, with_traffic
from tests.support.fleets.worlds import Edit, Run, run, script, silence

LAYOUT = make_layout(kernels=2, slices=2, per_kernel=3)
OPTIONS = ControllerOptions(readmit_after_s=40.0, readmit_every_s=5.0)
#: Requests per second and replica at which the other five are short of the script's load, and are not.
SHORT_RPS, ROOM_RPS = 3.5, 20.0
FROM_S, OVER_S = 10.0, 16.0


def still(*replicas: int, until_at_s: float = np.inf, kv_used: tuple[float, ...] = (0.3,) * 6) -> Edit:
    """From ``FROM_S`` on these replicas answer nothing in time; all use so much of their KV blocks."""

    def edit(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        if not FROM_S <= now_s < until_at_s:
            return seen
        probes = replace(seen.probes, outcome=seen.probes.outcome.copy(), valid=seen.probes.valid.copy())
        mine = np.isin(probes.replica, replicas)
        probes.outcome[mine], probes.valid[mine] = int(ProbeOutcome.TIMED_OUT), False
        probes.sampled_at_ms[mine] = (now_s - 0.5) * 1000.0
        answered = seen.answered.copy()
        answered[:, replicas] = 0
        return replace(seen, probes=probes, answered=answered, kv_used_ratio=np.array([kv_used]))

    return edit


def driven(capacity_rps: float, *edits: Edit, ticks: int) -> Run:
    """One replica is thought to carry ``capacity_rps``."""
    fleet = make_fleet(LAYOUT, capacity_rps=np.full(2, capacity_rps))
    setup = replace(make_configuration("fixed", fleet, OPTIONS), hang_timeouts=3)
    return run(setup, script(LAYOUT, ticks, *edits))


@pytest.mark.parametrize(
    ("kv_used", "hangs"),
    [((0.99,) * 6, False), ((0.99,) * 3 + (0.3,) * 3, True), ((0.3,) * 6, True)],
    ids=["short everywhere", "short on one kernel", "not short"],
)
def test_replicas_that_wait_for_blocks_as_all_others_do_not_hang(
    kv_used: tuple[float, ...], hangs: bool
) -> None:
    """They stay in rotation, because one less leaves fewer blocks to all; elsewhere there may be some."""
    result = driven(ROOM_RPS, still(0, 1, kv_used=kv_used), ticks=20)
    assert result.quarantined()[:, :2].any() == hangs
    assert not result.quarantined()[:, 2:].any()


@given(
    kv_used=st.lists(st.floats(0.0, 1.0), min_size=6, max_size=6),
    told=st.lists(st.booleans(), min_size=6, max_size=6),
    order=st.permutations(range(6)),
    kernel=st.integers(0, 1),
)
def test_shortage_is_of_every_kernel_and_of_fresh_scrapes(
    kv_used: list[float], told: list[bool], order: list[int], kernel: int
) -> None:
    """Any order of replicas says the same; stale scrapes say nothing; free blocks on one kernel end it."""
    used, owner = np.array(kv_used), np.array([0, 0, 0, 1, 1, 1])
    scraped_at_s = np.where(told, 12.0, 5.0)
    short = waits_for_blocks(used, scraped_at_s, owner, 10.0, order[0])
    moved = waits_for_blocks(used[order], scraped_at_s[order], owner[order], 10.0, 0)
    assert moved == short
    unsaid = waits_for_blocks(np.where(told, used, 1.0), scraped_at_s, owner, 10.0, order[0])
    assert unsaid == short
    assert not short or used[order[0]] > FULL_RATIO
    free = np.where(owner == kernel, 0.0, used)
    spared = told[order[0]] and any(t and k == kernel for t, k in zip(told, owner, strict=True))
    assert not (spared and waits_for_blocks(free, scraped_at_s, owner, 10.0, order[0]))
    everywhere = waits_for_blocks(np.ones(6), scraped_at_s, owner, 10.0, order[0])
    assert everywhere == told[order[0]]


@pytest.mark.parametrize(("capacity_rps", "away"), [(SHORT_RPS, False), (ROOM_RPS, True)])
def test_a_replica_whose_hang_is_over_is_out_only_while_it_is_spared(capacity_rps: float, away: bool) -> None:
    """It answers probes again: where the others are short it is back at once, elsewhere after its time."""
    result = driven(capacity_rps, still(0, until_at_s=OVER_S), ticks=24)
    out = result.quarantined()[:, 0]
    assert out[int(FROM_S) + 3]
    assert out[int(OVER_S) + 2] == away
    left = QuarantineReason.RELAPSED if away else QuarantineReason.NONE
    assert result.state.quarantine_reason[0, 0] == left


@pytest.mark.parametrize(("capacity_rps", "away"), [(SHORT_RPS, False), (ROOM_RPS, True)])
def test_a_replica_of_which_nothing_is_heard_is_out_only_while_it_is_spared(
    capacity_rps: float, away: bool
) -> None:
    """Neither scrapes nor probes of it arrive after it hung; the gateway finds out how it is."""

    def unheard(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        gone = silence(OVER_S)(seen, now_s)
        if gone is seen:
            return seen
        mine, first = seen.probes.replica == 0, np.arange(len(LAYOUT.replicas)) == 0
        outcome = np.where(mine, int(ProbeOutcome.NONE), seen.probes.outcome).astype(
            seen.probes.outcome.dtype
        )
        probes = replace(seen.probes, outcome=outcome, valid=seen.probes.valid & ~mine)
        scraped_at_ms = np.where(first, gone.scraped_at_ms, seen.scraped_at_ms)
        return replace(seen, probes=probes, scraped_at_ms=scraped_at_ms)

    stale_after_s = make_fleet(LAYOUT).contract.stale_after_s
    result = driven(capacity_rps, still(0), unheard, ticks=int(OVER_S + stale_after_s) + 6)
    out = result.quarantined()[:, 0]
    assert out[int(OVER_S) + 2]
    assert out[-1] == away


def test_what_a_reset_ends_is_no_evidence_against_the_replica() -> None:
    """The requests that a hung replica held fail in the next tick, by our own hand."""

    def ended(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        failed = np.zeros((1, 6, 2), dtype=np.int64)
        failed[:, 0] = 20 if FROM_S + 3.0 < now_s <= FROM_S + 5.0 else 0
        answered = np.full((1, 6, 2), 5, dtype=np.int64)
        answered[:, 0] = 0 if now_s >= FROM_S else 5
        return with_traffic(seen, LAYOUT, answered=answered, failed=failed)

    result = driven(ROOM_RPS, ended, still(0), ticks=16)
    assert result.state.quarantine_reason[0, 0] == QuarantineReason.HUNG
    assert result.state.window[0, 0, ..., OVER].sum() == 0.0
