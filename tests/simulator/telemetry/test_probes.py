"""Probes: their budget, measured values, the condition at their instant, repeat noise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contracts.telemetry import ProbeOutcome
from simulator.engine.exported import HEAD_WAIT_S, MEASURED_COLUMNS, STEP_S
from simulator.engine.gauges import GAUGE_ROWS, Gauges
from simulator.telemetry.probes import PROBE_LIMIT_S, SimulatedProbes
from simulator.world.compiled_scenario import CompiledScenario
from tests.support.fleets.synthetic import contract_document
from tests.support.fleets.synthetic_kernels import SLICES


def answered(shape: tuple[int, int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
    """Every replica answers."""
    return np.full(shape, int(ProbeOutcome.ANSWERED), dtype=np.int8)


def test_probe_metrics_are_those_of_the_contract(world: CompiledScenario) -> None:
    """Probes carry the metrics that the contract judges and nothing else."""
    assert world.layout.probe_metrics == ("kl_mean@full_vocab", "tv_mean@full_vocab", "top1_flip@full_vocab")
    assert len(contract_document()["spec"]["clauses"]) == 6  # type: ignore[index]


@given(seed=st.integers(0, 2**31))
def test_probe_budget_is_kept(world: CompiledScenario, seed: int) -> None:
    """Every replica gets its stated probes per second, all within their tick, round robin over slices."""
    probes, replicas = SimulatedProbes(world, [seed]), len(world.layout.replicas)
    computed, mine = 0, []
    for tick in range(world.ticks):
        probes.open(tick, np.zeros((1, replicas), dtype=np.int64), answered((1, replicas)))
        at_s = probes.slots.at_s[probes.due]
        assert ((at_s > tick) & (at_s <= tick + 1)).all()
        computed += at_s.size
        mine += world.prompts.probe_slice[probes.slots.place[0, 4:5][probes.due[0, 4:5]]].tolist()
    assert abs(computed - replicas * world.horizon_s) <= replicas
    assert (np.diff(mine) % len(SLICES) == 1).all()


def test_probes_replay_measured_values(world: CompiledScenario) -> None:
    """A probe's values are those measured for its kernel, condition and prompt, to the last bit."""
    probes = SimulatedProbes(world, [5])
    shape = (1, len(world.layout.replicas))
    condition = np.zeros(shape, dtype=np.int64)
    condition[0, 3] = 7
    probes.open(0, condition, answered(shape))
    seen = probes.close(np.ones(shape, dtype=np.bool_))
    for slot in np.flatnonzero(seen.valid[0]):
        replica = int(seen.replica[0, slot])
        table = world.tables[int(world.layout.replica_kernel[replica])]
        unit = int(np.flatnonzero(world.prompts.probe_ids == seen.prompt[0, slot])[0])
        measured = table.probe[condition[0, replica], unit]
        assert any(np.array_equal(seen.values[0, slot], repeat) for repeat in measured)


def test_a_probe_sees_the_condition_at_its_instant(world: CompiledScenario) -> None:
    """A change within a tick affects the probes computed after it, not those before."""
    shape = (1, len(world.layout.replicas))
    nothing, everyone = np.zeros(shape, dtype=np.int64), np.ones(shape, dtype=np.bool_)
    for at_s, hit in ((0.0, True), (1.0, False)):
        probes = SimulatedProbes(world, [5])
        probes.open(0, nothing, answered(shape))
        probes.change(0, 3, at_s, 7, int(ProbeOutcome.ANSWERED))
        changed, clean = probes.close(everyone), SimulatedProbes(world, [5])
        clean.open(0, nothing, answered(shape))
        differs = (changed.values != clean.close(everyone).values).any(axis=2)[0]
        assert differs.any() == (hit and bool(probes.due[0, 3]))


def test_repeat_noise_is_off_by_default(tmp_path: Path, world: CompiledScenario) -> None:
    """Without repeat noise a prompt repeats bit for bit; with it values scatter by the stated ratio."""
    shape = (1, len(world.layout.replicas))
    noisy = replace(world, telemetry=world.telemetry.model_copy(update={"repeat_noise": 0.1}))
    runs = []
    for scenario in (world, noisy):
        probes = SimulatedProbes(scenario, [5])
        values = []
        for tick in range(40):
            probes.open(tick, np.zeros(shape, dtype=np.int64), answered(shape))
            values.append(probes.close(np.ones(shape, dtype=np.bool_)).values)
        runs.append(np.stack(values))
    ratio = np.log(runs[1] / runs[0])
    assert 0.08 < ratio.std() < 0.12


def test_a_probe_outcome_follows_its_replica(world: CompiledScenario) -> None:
    """Dead: refused at once. Hung: timed out from the limit on; before that the outcome is unknown."""
    shape = (1, len(world.layout.replicas))
    probes, nothing, everyone = (
        SimulatedProbes(world, [5]),
        np.zeros(shape, dtype=np.int64),
        np.ones(shape, dtype=np.bool_),
    )
    state, hung_at_s = answered(shape), 3.5
    for tick in range(9):
        probes.open(tick, nothing, state)
        if tick == int(hung_at_s):
            for replica, outcome in ((1, ProbeOutcome.TIMED_OUT), (2, ProbeOutcome.REFUSED)):
                probes.change(0, replica, hung_at_s, 0, int(outcome))
                state[0, replica] = int(outcome)
        at_s, seen = probes.slots.at_s.copy(), probes.close(everyone)
        for slot in np.flatnonzero(np.isfinite(at_s[0])):
            replica, age_s = int(seen.replica[0, slot]), at_s[0, slot] - hung_at_s
            expected = ProbeOutcome.ANSWERED
            if replica == 2 and age_s > 0.0:
                expected = ProbeOutcome.REFUSED
            elif replica == 1 and age_s > 0.0:
                expected = ProbeOutcome.NONE if age_s < PROBE_LIMIT_S else ProbeOutcome.TIMED_OUT
            assert seen.outcome[0, slot] == expected
            assert seen.valid[0, slot] == (expected == ProbeOutcome.ANSWERED)
            assert np.isnan(seen.values[0, slot]).all() == (expected != ProbeOutcome.ANSWERED)


def test_a_replica_that_fails_a_share_fails_as_many_probes(world: CompiledScenario) -> None:
    """One replica answers a third of its requests with an error; probes of the others are unaffected."""
    shape = (1, len(world.layout.replicas))
    ratio, nothing = np.zeros(shape), np.zeros(shape, dtype=np.int64)
    ratio[0, 3] = 0.33
    probes, clean = SimulatedProbes(world, [5]), SimulatedProbes(world, [5])
    failed, ended = 0, 0
    for tick in range(world.ticks):
        for each in (probes, clean):
            each.open(tick, nothing, answered(shape))
        probes.fail(ratio)
        seen, before = (each.close(np.ones(shape, dtype=np.bool_)) for each in (probes, clean))
        mine = seen.replica == 3
        failed += int((seen.outcome[mine] == ProbeOutcome.FAILED).sum())
        ended += int((before.outcome[mine] == ProbeOutcome.ANSWERED).sum())
        np.testing.assert_array_equal(seen.values[~mine], before.values[~mine])
        assert not (seen.valid & (seen.outcome != ProbeOutcome.ANSWERED)).any()
    assert abs(failed - 0.33 * ended) <= 4.0 * np.sqrt(0.33 * 0.67 * ended)


def test_a_probe_waits_behind_the_queue(world: CompiledScenario) -> None:
    """It takes longer by the wait of the queue's head; behind a wait of 2.5 s it times out."""
    shape = (1, len(world.layout.replicas))
    measured = np.zeros((*shape, MEASURED_COLUMNS))
    measured[..., STEP_S] = 0.01
    measured[0, 1, HEAD_WAIT_S], measured[0, 2, HEAD_WAIT_S] = 0.7, 2.5
    probes = SimulatedProbes(world, [5])
    probes.open(0, np.zeros(shape, dtype=np.int64), answered(shape))
    gauges = Gauges(counts=np.zeros((GAUGE_ROWS, *shape), dtype=np.int64), measured=measured)
    seen = probes.close(np.ones(shape, dtype=np.bool_), gauges)
    due = probes.due[0]
    of = [due & (seen.replica[0] == replica) for replica in range(3)]
    assert all(one.any() for one in of)
    np.testing.assert_allclose(seen.latency_ms[0, of[0]], 15.0)
    np.testing.assert_allclose(seen.latency_ms[0, of[1]], 715.0)
    assert (seen.outcome[0, of[2]] == ProbeOutcome.TIMED_OUT).all()
    assert not seen.valid[0, of[2]].any()
