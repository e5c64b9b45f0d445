"""A replica hangs when its probes time out, it holds requests and makes no progress; all three together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from contracts.telemetry import EngineCounters, FleetTelemetry, ProbeOutcome
from controller.judge.replicas.hang import leaks_memory, note_timeouts
from controller.options import ControllerOptions, ControllerSetup
from controller.state import QuarantineReason
from controller.state_json import state_from_json, state_to_json
from policies.registry import make_configuration
from tests.support.fleets.builders import make_fleet, make_layout, with_probes, with_steps
from tests.support.fleets.worlds import run, script

LAYOUT = make_layout(kernels=2, slices=2, per_kernel=3)
FLEET = make_fleet(LAYOUT)
SETUP = replace(make_configuration("fixed", FLEET), hang_timeouts=3)
FROM_S = 5.0
QUICK = ControllerOptions(readmit_after_s=20.0, readmit_every_s=5.0, hung_after_s=5.0)


def standing(seen: FleetTelemetry, *replicas: int) -> FleetTelemetry:
    """Engines of these replicas make no step, those of all others do."""
    return with_steps(seen, np.isin(np.arange(len(LAYOUT.replicas)), replicas)[None])


def hanging(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
    """From ``FROM_S`` on replica 0 answers no request, and every probe of it times out."""
    if now_s < FROM_S:
        return seen
    probed = with_probes(seen, LAYOUT, np.full(len(LAYOUT.probe_metrics), 1e-4))
    probes, mine = probed.probes, probed.probes.replica == 0
    probes.outcome[mine], probes.valid[mine] = int(ProbeOutcome.TIMED_OUT), False
    probes.sampled_at_ms[mine] = (now_s - 0.5) * 1000.0
    answered = seen.answered.copy()
    answered[:, 0] = 0
    return replace(probed, answered=answered)


def answering(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
    """The same probes, but requests are still answered, as when only the prober's network fails."""
    return replace(hanging(seen, now_s), answered=seen.answered)


def stepping(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
    """The same probes and no answers, but scrapes show steps: a long queue of long requests."""
    counted = EngineCounters.unknown(len(seen.now_ms), len(LAYOUT.replicas))
    counted.span_s[:], counted.iterations[:] = 0.2, 40.0
    return replace(hanging(seen, now_s), engine=counted)


def idle(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
    """The same probes and no answers, but no request is waiting."""
    return replace(hanging(seen, now_s), running=np.zeros_like(seen.running))


def silent(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
    """The same, for a replica whose scrapes and running requests are unknown."""
    nothing = np.full_like(seen.running, np.nan)
    return replace(hanging(seen, now_s), running=nothing, waiting=nothing)


def unreadable(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
    """The same, but every other probe gets an unreadable answer in time."""
    shown = hanging(seen, now_s)
    struck = (shown.probes.replica == 0) & (shown.probes.slice == 0) & (now_s >= FROM_S)
    shown.probes.outcome[struck] = int(ProbeOutcome.UNREADABLE)
    return shown


def test_hang_is_quarantined_in_three_probes_and_its_streams_are_reset_once() -> None:
    """Within seconds, with its own reason; the plan asks once for the reset of that replica alone."""
    result = run(SETUP, script(LAYOUT, 15, hanging))
    away = result.quarantined()
    assert away[:, 1:].sum() == 0
    first = int(np.flatnonzero(away[:, 0])[0])
    assert first <= FROM_S + 3.0
    assert result.decisions[first].quarantine_reason[0, 0] == QuarantineReason.HUNG
    resets = [one.plan.reset for one in result.decisions]
    assert [index for index, one in enumerate(resets) if one is not None] == [first]
    cut = resets[first]
    assert cut is not None
    assert cut[0].tolist() == [True, False, False, False, False, False]


@pytest.mark.parametrize("edit", [answering, stepping, idle, silent, unreadable])
def test_one_sign_alone_is_no_hang(edit: Callable[[FleetTelemetry, float], FleetTelemetry]) -> None:
    """Probe timeouts with answers, steps, no requests or no scrapes quarantine no replica that soon."""
    assert not run(SETUP, script(LAYOUT, 13, edit)).quarantined().any()


def test_without_the_setting_nothing_changes() -> None:
    """Without the setting there is no memory and no reset, and quarantine comes as late as before."""
    plain: ControllerSetup = replace(SETUP, hang_timeouts=0)
    result = run(plain, script(LAYOUT, 12, hanging))
    assert not result.quarantined().any()
    assert result.state.hang == {}
    assert all(one.plan.reset is None for one in result.decisions)


def test_the_count_of_timeouts_survives_a_restart() -> None:
    """Two timeouts before and one after a restart make three."""
    before = run(SETUP, script(LAYOUT, 7, hanging)).state
    restored = state_from_json(state_to_json(before, SETUP), SETUP)
    assert restored.hang["timeouts"].tolist() == before.hang["timeouts"].tolist()
    assert before.hang["timeouts"][0, 0] > 0


@given(
    span_s=st.floats(1.0, 10.0),
    before_s=st.floats(-9.0, 9.0),
    busy_s=st.floats(0.0, 10.0) | st.just(np.nan),
    steps=st.booleans(),
    fresh=st.booleans(),
)
def test_only_steps_that_had_no_room_before_the_first_timeout_end_the_silence(
    span_s: float, before_s: float, busy_s: float, steps: bool, fresh: bool
) -> None:
    """A scrape of the silence shows its steps; one that began before, if they took longer than that."""
    assume(before_s < span_s and abs(before_s) > 1e-6 and not abs(busy_s - before_s) < 1e-6)
    since_s = 100.0
    memory = {
        "timeouts": np.array([[2]]),
        "since_at_s": np.array([[since_s]]),
        "timed_out_at_s": np.array([[since_s + 1.0]]),
    }
    none = np.zeros((1, 0), dtype=np.int64)
    engine = SimpleNamespace(span_s=np.array([[span_s]]), iterations=np.array([[9.0 * steps]]))
    probes = SimpleNamespace(outcome=none, replica=none, sampled_at_ms=none.astype(np.float64))
    seen: Any = SimpleNamespace(
        probes=probes, engine=engine, scraped_at_ms=np.array([[1000.0 * (since_s - before_s + span_s)]])
    )
    after = note_timeouts(
        memory, seen, np.array([[fresh]]), np.array([[since_s - 1.0]]), lambda: np.array([[busy_s]])
    )
    stepped = fresh and steps and (before_s < 0.0 or busy_s > before_s)
    assert after["timeouts"][0, 0] == (0 if stepped else 2)


@given(
    held=st.floats(0.51, 1.0),
    used=st.lists(st.floats(0.0, 1.0), min_size=5, max_size=5),
)
def test_a_replica_with_no_more_blocks_than_half_of_the_serving_ones_may_return(
    held: float, used: list[float]
) -> None:
    """An idle replica whose blocks stay in use waits outside, unless blocks are as scarce everywhere."""
    kv = np.array([[held, *used]])
    seen: Any = SimpleNamespace(
        running=np.array([[0.0, *[3.0] * 5]]), waiting=np.zeros((1, 6)), kv_used_ratio=kv
    )
    known = np.ones((1, 6), dtype=np.bool_)
    serving = known & (np.arange(6) > 0)
    kept = leaks_memory(seen, known, serving)
    assert kept[0, 0] == (np.median(used) < held)
    assert leaks_memory(seen, known, ~known)[0, 0]
    assert not kept[0, 1:].any()


@pytest.mark.parametrize("known", [True, False])
def test_a_replica_with_one_long_answer_is_not_hung(known: bool) -> None:
    """Nothing ends on it for a minute while peers answer: counters show steps, or are unknown."""

    def long(seen: FleetTelemetry, _now_s: float) -> FleetTelemetry:
        answered = seen.answered.copy()
        answered[:, 0] = 0
        told = with_steps(seen, np.zeros(answered.shape, dtype=np.bool_)) if known else standing(seen, 0)
        if not known:
            told.engine.iterations[:] = np.nan
        return replace(told, answered=answered)

    assert not run(make_configuration("fixed", FLEET, QUICK), script(LAYOUT, 60, long)).quarantined().any()


def test_time_without_counters_is_no_silence() -> None:
    """Counters that return after a minute count from then on."""

    def gap(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        answered = seen.answered.copy()
        answered[:, 0] = 0
        stuck = now_s >= 70.0 or now_s % 4.0 > 0.0
        told = standing(seen, *[0] * stuck)
        told.engine.iterations[:, 0] = 0.0 if now_s < 5.0 or now_s >= 66.0 else np.nan
        return replace(told, answered=answered)

    result = run(make_configuration("fixed", FLEET, QUICK), script(LAYOUT, 90, gap))
    out = result.quarantined()[:, 0]
    assert out.any()
    assert 65 + QUICK.hung_least_s <= int(np.argmax(out)) + 1 <= 67 + QUICK.hung_least_s


def test_a_replica_outpaced_by_its_peers_is_hung_sooner() -> None:
    """No step while the average peer answered twenty: hung, long before ``hung_after_s``."""

    def stuck(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        answered = seen.answered.copy()
        answered[:, 0] = 0 if now_s > 5.0 else answered[:, 0]
        return replace(standing(seen, *[0] * (now_s > 5.0)), answered=answered // 10)

    options = replace(QUICK, hung_after_s=60.0)
    out = run(make_configuration("fixed", FLEET, options), script(LAYOUT, 40, stuck)).quarantined()[:, 0]
    assert 15 <= int(np.argmax(out)) + 1 <= 16  # two answers per second: ten seconds are enough
    assert not run(make_configuration("fixed", FLEET, options), script(LAYOUT, 40)).quarantined().any()
