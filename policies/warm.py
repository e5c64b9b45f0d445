"""Compiles every numba function of controller and policies, by two ticks of a synthetic fleet.

``warm`` compiles everything. The other functions compile one part each, for processes that share the work;
their order and requirements are in ``scripts.setup.warm``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from contracts.compiled.certified import CertifiedValues, certified_values
from contracts.compiled.steady_state import capacities_rps, steady_limits_rps
from contracts.telemetry import FleetTelemetry
from controller.cells import some_within
from controller.detect.as_certified_pass import AwaitedReturns, find_again
from controller.encoding.encoder import Encoder
from controller.fleet import FleetSetup
from controller.initial import initial_state
from controller.loop import perceive, tick
from controller.options import ControllerSetup, ShieldLimits
from controller.perceive.queue_pass import count_waiting
from controller.perceive.usual_speed_pass import COLUMNS, divide, follow, of_kernels, usual_ratio
from controller.ports import Observation, PolicyState, Proposal
from controller.shield.gate import ShieldView, shield
from controller.state import ControllerState
from policies.learned.choosing import Chooser
from policies.registry import BASELINES, make_configuration
from policies.rules.fixed import KnownGoodPolicy
from policies.supervised import shipped_meta, supervised_setup
from policies.synthetic_fleet import METRICS, synthetic_fleet, synthetic_telemetry

Turn = Callable[[ControllerState, FleetTelemetry, ControllerSetup], ControllerState]

#: Numbers of fleets: arrays of one fleet are contiguous in more ways, so numba compiles some functions twice.
BATCHES = (1, 2)
#: Configurations with detectors that cover most compiled functions.
_WATCHING = ("fixed", "sequential:prior=1")
#: Configurations with policies that look for kernels with headroom, and with policies that do not.
_ALLOCATING = ("hysteresis", "threshold", "learned")
_PLAIN = ("breaker", "shield-alone", "supervised")


def warm() -> None:
    """Compile everything, or load it from the cache."""
    _warm_capacity()
    _warm_return()
    _run([*BASELINES, "sequential:prior=1", "learned", "meta"])


def warm_perception() -> None:
    """Estimating, detecting and judging, and engine capacities."""
    _warm_capacity()
    for name, batch in product(_WATCHING, BATCHES):
        _run_ticks(_setup(name), batch, _perceived)


def warm_rest_of_perception() -> None:
    """The remaining detector, and recovery."""
    for batch in BATCHES:
        _run_ticks(_setup("burn-rate"), batch, _perceived)
    _warm_return()


def warm_shield() -> None:
    """The shield."""
    setup = _setup("fixed")
    kernels, slices, _ = setup.layout.shape
    for batch in BATCHES:
        table = initial_state(setup, batch).table
        no = np.zeros((batch, kernels, slices), dtype=np.bool_)
        view = ShieldView(
            last=table,
            hard_violated=no,
            certified=~no,
            ready=np.ones((batch, kernels), dtype=np.int64),
            offered_rps=np.ones((batch, slices)),
            may_move=~no[:, 0],
        )
        shield(table, view, setup.fleet, ShieldLimits())


def warm_allocation() -> None:
    """Proposals of policies that look for kernels with headroom; without the steps after a proposal."""
    for name, batch in product(_ALLOCATING, BATCHES):
        _run_ticks(_setup(name), batch, _proposed)


def warm_plain_policies() -> None:
    """Whole ticks of the other policies: moves are observed and made."""
    _run(_PLAIN)


def _warm_capacity() -> None:
    """Engine capacity, called outside of compiled code."""
    engine = synthetic_fleet(2, 2, 4).engine
    assert engine is not None
    steady_limits_rps(engine.step_s, engine, engine.demand)
    capacities_rps(engine.step_s, engine, engine.demand)
    waits = np.zeros((1, 4))
    count_waiting(np.zeros((1, 2)), waits, waits, waits > 0.0, np.zeros(4, dtype=np.int64))


def _warm_usual(batch: int) -> None:
    """Usual step times of replicas, which simulated fleets do not need."""
    ratio, usual = np.ones((batch, 4)), np.zeros((batch, 4, COLUMNS))
    follow(usual, ratio, ratio, ratio > 0.0)
    divide(np.empty_like(ratio), ratio, ratio, usual, 1.0)
    usual_ratio(np.empty_like(ratio), usual)
    of_kernels(np.zeros((batch, 2)), usual, np.zeros(4, dtype=np.int64))


def _warm_return() -> None:
    """Recovery by certified values if repeats are exact, or by values seen while healthy if nothing is
    certified; no alarm within two ticks needs it.
    """
    some_within(np.zeros((1, 1, 1), dtype=np.bool_))
    bare = synthetic_fleet(2, 2, 4)
    fleet = replace(bare, certified=_certified(2, repeat_noise=0.0))
    setup, bounded = (make_configuration("sequential", one) for one in (fleet, bare))
    assert setup.drift is not None
    assert setup.drift.runs is not None
    for batch in BATCHES:
        _warm_usual(batch)
        _run_ticks(setup, batch, _perceived)
        _run_ticks(bounded, batch, _perceived)
        runs = initial_state(setup, batch).drift["runs"]
        again = np.empty((*runs.shape[:2], runs.shape[2] - 1), dtype=np.bool_)
        rules = setup.drift.runs.rules
        shapes = (batch, again.shape[2]), (batch, rules.owner.size)
        awaited = AwaitedReturns(*(np.zeros(shape, dtype=np.bool_) for shape in shapes))
        find_again(again, runs, tuple(awaited), tuple(rules))


def _perceived(state: ControllerState, seen: FleetTelemetry, setup: ControllerSetup) -> ControllerState:
    return perceive(state, seen, setup).after


def _proposed(state: ControllerState, seen: FleetTelemetry, setup: ControllerSetup) -> ControllerState:
    known = perceive(state, seen, setup)
    _, memory = setup.policy.propose(known.observation, known.after.policy)
    return replace(known.after, policy=memory)


def _run(names: Iterable[str]) -> None:
    for name, batch in product(names, BATCHES):
        _run_ticks(_setup(name), batch, lambda state, seen, setup: tick(state, seen, setup)[0])


def _run_ticks(setup: ControllerSetup, batch: int, turn: Turn) -> None:
    """Two ticks, the second at the end of a window."""
    rng, state = np.random.Generator(np.random.PCG64(0)), initial_state(setup, batch)
    for now_s in (0.0, setup.contract.window_s):
        state = turn(state, _troubled(synthetic_telemetry(setup.fleet, now_s, batch, 4, rng)), setup)


def _setup(name: str) -> ControllerSetup:
    """A baseline by its text; ``learned`` without its network; under the shipped meta-contract, or one with a
    baseline that looks for no headroom.
    """
    fleet = replace(synthetic_fleet(2, 2, 4), certified=_certified(2))
    if name == "learned":
        return replace(make_configuration("sequential", fleet), policy=_Staying(chooser=_chooser(fleet)))
    if name == "meta":
        return supervised_setup(shipped_meta(), make_configuration("threshold", fleet))
    if name == "supervised":
        meta = replace(shipped_meta(), baseline=KnownGoodPolicy().policy_id)
        return supervised_setup(meta, make_configuration("shield-alone", fleet))
    return make_configuration(name, fleet)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Staying:
    """The part of a learned policy around its network, which needs no compiling."""

    chooser: Chooser
    policy_id: str = "staying"
    reads_running: bool = True

    def initial(self, batch: int) -> PolicyState:
        """Every slice at home."""
        return self.chooser.initial(batch)

    def propose(self, observation: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """The unchanged choice."""
        _, memory = self.chooser.look(observation, state)
        return self.chooser.propose(np.asarray(memory["choice"], dtype=np.int64), observation, memory)


def _chooser(fleet: FleetSetup) -> Chooser:
    encoder = Encoder(kernels_max=len(fleet.layout.kernels), slices=len(fleet.home))
    return Chooser.of(encoder, len(fleet.layout.kernels), fleet.home, fleet.contract)


def _troubled(seen: FleetTelemetry) -> FleetTelemetry:
    """The same with one failing replica, so that rare code paths are compiled as well."""
    seen.failed[:, 0] = 1
    seen.consecutive_failed[:, 0] = 9
    seen.fingerprint_match[:, 1] = 0.0
    return seen


def _certified(kernels: int, repeat_noise: float = 0.01) -> CertifiedValues:
    """One prompt, that of ``synthetic_telemetry``, certified on every kernel; replicas answer differently."""
    nothing = np.zeros(1, dtype=np.int64)
    values = [np.full((1, 1, len(METRICS)), 1e-4)] * kernels
    return certified_values(nothing, nothing, values, repeat_noise)
