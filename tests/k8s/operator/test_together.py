"""Policies with equal set-ups decide in one batch, with the same results as alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("kubernetes", reason="install the extra k8s: make setup-test")

from contracts.telemetry import EngineCounters, FleetTelemetry, GatewayCounts, ProbeSamples
from controller.decision import Decision
from controller.state import ControllerState
from k8s.operator.route_loop import RouteLoop
from live.control.stacks import Stacks, arrays_in, compact_copy
from live.control.turns import BatchedTurns, UndecidedFleet, decide, setup_key
from scripts.studies.operator.resources import PoolSize
from scripts.studies.operator.world import recorded_world

SHAPE = PoolSize(kernels=2, replicas=3, slices=3)
POOLS, TICKS = 4, 40


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of ``value`` by path; arrays as dtype, shape and bytes."""
    if isinstance(value, np.ndarray):
        yield path, (value.dtype.str, value.shape, value.tobytes())
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}")
    elif is_dataclass(value) and not isinstance(value, type):
        for item in fields(value):
            yield from leaves(getattr(value, item.name), f"{path}.{item.name}")
    else:
        yield path, value


def loops_of(pools: int) -> dict[str, RouteLoop]:
    """Loops after two turns, so that each has decided."""
    world = recorded_world(pools, SHAPE, 3)
    operator = world.operator()
    for _ in range(2):
        world.advance()
        operator.turn()
    return operator.loops


def probes_of(made: np.random.Generator, metrics: int, count: int, now_ms: float) -> ProbeSamples:
    """``count`` random probes, some of them without a result."""
    each = (1, count)
    return ProbeSamples.of_results(
        replica=made.integers(0, 6, each),
        slice=made.integers(0, 3, each),
        prompt=made.integers(0, 9, each),
        sampled_at_ms=now_ms - made.uniform(0.0, 900.0, each),
        values=made.exponential(0.3, (*each, metrics)),
        valid=made.random(each) < 0.8,
    )


def seen_by(made: np.random.Generator, like: FleetTelemetry, metrics: int) -> FleetTelemetry:
    """Random telemetry, one second after ``like``."""
    now_ms = like.now_ms + 1000.0
    engine = made.exponential(50.0, (len(fields(EngineCounters)), *like.running.shape))
    engine[made.random(engine.shape) < 0.1] = np.nan
    latency = made.integers(0, 30, like.latency_le.shape).cumsum(axis=-1)
    gateway = like.gateway
    return replace(
        like,
        now_ms=now_ms,
        replica_state=made.choice([0, 1, 2, 2, 2, 2, 2], like.replica_state.shape).astype(np.int8),
        scraped_at_ms=np.where(made.random(like.running.shape) < 0.9, now_ms, like.scraped_at_ms),
        running=np.where(made.random(like.running.shape) < 0.1, np.nan, like.running + 1.0),
        waiting=made.integers(0, 9, like.running.shape).astype(np.float64),
        kv_used_ratio=made.random(like.running.shape),
        latency_le=latency,
        engine=EngineCounters.of(engine),
        fingerprint_match=made.choice([0.0, 1.0, 1.0, 1.0, np.nan], like.running.shape),
        offered=made.integers(0, 90, like.offered.shape),
        gateway=GatewayCounts(
            answered=made.integers(0, 30, gateway.answered.shape),
            failed=made.integers(1, 3, gateway.failed.shape),
            timed_out=made.integers(0, 2, gateway.failed.shape),
            latency_le=made.integers(0, 9, gateway.latency_le.shape).cumsum(axis=-1),
        ),
        answered=made.integers(0, 30, like.answered.shape),
        failed=made.integers(0, 3, like.failed.shape),
        consecutive_failed=made.integers(0, 7, like.failed.shape),
        probes=probes_of(made, metrics, int(made.integers(0, 2)), float(now_ms[0])),
    )


def told(decision: Decision) -> dict[str, Any]:
    """Leaves of ``decision``; an all-zero loss reads as None."""
    found = dict(leaves(decision))
    loss = decision.judgement.loss
    return found | ({".judgement.loss": None} if loss is None or not loss.any() else {})


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_decides_as_each_alone(seed: int) -> None:
    """With random telemetry and a changing set of fleets, batch and single ticks agree byte for byte.

    The batch continues from its own states, the single ticks from theirs.
    """
    made, loops, batches = np.random.default_rng(seed), loops_of(POOLS), BatchedTurns()
    turns = {name: loop.standing.turn for name, loop in loops.items()}
    alone = {name: loop.controller.state for name, loop in loops.items()}
    kept, likes = dict(alone), {name: turn.decision for name, turn in turns.items() if turn is not None}
    seen = {name: turn.telemetry for name, turn in turns.items() if turn is not None}
    together = 0
    for _ in range(TICKS):
        asked = {}
        for name, loop in loops.items():
            last = seen[name]
            assert last is not None
            seen[name] = now = seen_by(made, last, len(loop.setup.layout.probe_metrics))
            if made.random() < 0.9:
                asked[name] = asking(loop, kept[name], now, likes[name])
        found = batches.decide(asked)
        together += len(found)
        for name, one in asked.items():
            alone[name], decision = decide(alone[name], one.telemetry, one.setup)
            likes[name] = decision
            kept[name] = found[name].after if name in found else compact_copy(alone[name])
            assert dict(leaves(kept[name])) == dict(leaves(alone[name]))
            shown = found[name].decision if name in found else decision
            assert told(shown) == told(decision)
    assert together > POOLS * TICKS / 2


def asking(
    loop: RouteLoop, before: ControllerState, seen: FleetTelemetry, like: Decision | None
) -> UndecidedFleet:
    """A fleet as input of a batch."""
    return UndecidedFleet(
        setup=loop.setup, key=setup_key(loop.setup), before=before, telemetry=seen, like=like
    )


def test_an_unchanged_batch_is_stacked_once_and_copies_are_independent() -> None:
    """All rows in their order lead back to the record without a copy; a copied row owns its memory."""
    first, stacks = [np.full((1, 3), float(at)) for at in range(4)], Stacks()
    whole = stacks.stacked(first)
    later = whole + 1.0
    rows = stacks.parted(later, first[0], 4)
    after = Stacks(stacks.given(later))
    assert after.stacked(rows) is later
    assert np.array_equal(after.stacked(rows[::-1]), later[::-1])
    assert np.array_equal(after.stacked(rows[1:]), later[1:])
    assert rows[2].base is later
    assert compact_copy(rows[2]).base is None
    assert np.array_equal(compact_copy(rows[2]), later[2:3])


def test_a_policy_that_left_a_batch_keeps_none_of_its_memory() -> None:
    """After a turn in a batch and one alone, no array of the state is a view of a larger one."""
    loops = loops_of(2)
    loop = loops["pool-0"]
    assert any(one.base is not None for one in arrays_in(loop.controller.state))
    documents = loop.documents
    loop.finish(documents, loop.begin())
    for one in arrays_in(loop.controller.state):
        assert one.base is None or one.base.nbytes <= one.nbytes


def test_setups_are_alike_but_for_the_contracts_name() -> None:
    """Different limits keep fleets in separate batches; different contract names do not."""
    one, other = (loop.setup for loop in loops_of(2).values())
    assert one.contract.sha256 != other.contract.sha256
    assert setup_key(one) == setup_key(other)
    limits = replace(other.options.limits, max_load_ratio=1.2)
    assert setup_key(one) != setup_key(replace(other, options=replace(other.options, limits=limits)))


def test_a_policy_that_is_more_than_values_is_alike_to_none() -> None:
    """A policy that cannot be compared is never batched."""
    loop = next(iter(loops_of(1).values()))
    odd = type("Odd", (), {})()
    assert setup_key(replace(loop.setup, policy=odd)) is None


def test_records_of_other_shapes_are_no_batch() -> None:
    """Fleets of different layouts are refused, not broadcast."""
    with pytest.raises(ValueError, match="of one fleet each"):
        Stacks().stacked([np.zeros((1, 2)), np.zeros((1, 3))])
    with pytest.raises(ValueError, match="of one fleet each"):
        Stacks().stacked([np.zeros((2, 2)), np.zeros((2, 2))])
