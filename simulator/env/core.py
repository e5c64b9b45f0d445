"""The environment without Gymnasium: B fleets in lock-step, with arrays as inputs and outputs.

It runs the controller's own tick, split where a policy proposes: ``perceive`` gives the observation, the
action becomes the proposal, and ``resolve`` supervises and shields it. The fleets receive only the
controller's plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts.loading.shipped import E5_BASE
from contracts.loading.uris import resolve_uri
from contracts.scoring.reward import RewardWeights
from controller.decision import Decision, Perception
from controller.detect.detector import Detector
from controller.detect.sequential.detector import SequentialDetector
from controller.detect.sequential.plan import SequentialSettings, sequential_plan
from controller.detect.traffic import shipped_traffic
from controller.encoding.encoder import Encoder
from controller.fleet import FleetSetup
from controller.initial import initial_state
from controller.loop import perceive, resolve
from controller.options import ControllerOptions, ControllerSetup
from controller.ports import Observation, PolicyState, Proposal, RoutingPlan
from controller.state import ControllerState
from simulator.env.base import Base, load_base
from simulator.env.fleets import SteppedFleets
from simulator.env.randomise import DrawnEpisode, draw_episode
from simulator.env.reward import RewardTerms, TermsOfTicks
from simulator.env.space import EpisodeSpace, Split

#: Rows of the encoding: pools of up to this many kernels share one policy.
KERNELS_MAX = 8


def shipped_detector(fleet: FleetSetup) -> Detector:
    """Sequential detectors as in ``sequential`` and the shipped policy, with the shipped calibration."""
    settings = SequentialSettings(drift=True, traffic=shipped_traffic())
    return SequentialDetector(plan=sequential_plan(fleet, settings))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvConfig:
    """Configuration of an environment."""

    scenarios: tuple[str | Path, ...] = (E5_BASE,)
    """Base scenarios; lock-step episode number e uses number e modulo their count, so pools of different size
    take turns. All must have the slices and clauses of one contract."""
    horizon_s: float | None = 300.0
    """Length of an episode; None: the scenario's own."""
    kernels_max: int = KERNELS_MAX
    """Rows of the encoding."""
    space: EpisodeSpace = field(default_factory=EpisodeSpace)
    """The space from which episodes are drawn."""
    split: Split = "train"
    """The fault families to draw."""
    weights: RewardWeights = field(default_factory=RewardWeights)
    options: ControllerOptions = field(default_factory=ControllerOptions)
    """Of the internal controller."""
    detector: Callable[[FleetSetup], Detector] = shipped_detector
    """Makes the internal controller's detector for a fleet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionPolicy:
    """Takes the place of a policy in the controller's set-up; proposes the last action's table."""

    policy_id: str = "environment"
    reads_running: bool = True

    def initial(self, batch: int) -> PolicyState:  # noqa: ARG002 - the protocol's argument
        """Empty: nothing to remember."""
        return {}

    def propose(self, seen: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """The table in force, for a tick without an action."""
        return _proposal(seen.table, seen), state


def _proposal(table: NDArray[np.float64], seen: Observation) -> Proposal:
    return Proposal(table=table, ejected=np.zeros(seen.in_rotation.shape, dtype=np.bool_))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The outcome of one step."""

    terms: RewardTerms
    """Of the past tick."""
    shielded: NDArray[np.float64]
    """[B], half the L1 distance per slice between the requested table and the table in force."""
    over: bool
    """Whether the episodes have reached their horizon."""
    decision: Decision


class EnvCore:
    """``batch`` fleets, numbered from ``first_fleet`` on; fleet f's episodes depend only on (seed, f)."""

    def __init__(self, config: EnvConfig, batch: int, first_fleet: int = 0) -> None:
        self.config, self.batch = config, batch
        self._fleet_numbers = range(first_fleet, first_fleet + batch)
        self.bases = [load_base(_path(uri), config.horizon_s) for uri in config.scenarios]
        contract = self.bases[0].compiled.contract
        _check_alike(self.bases)
        self.encoder = Encoder(kernels_max=config.kernels_max, slices=len(contract.slices))
        self.clauses, self.slices = contract.clause_ids, contract.slices
        self._setups = [
            ControllerSetup(
                fleet=base.compiled.setup,
                policy=ActionPolicy(),
                options=config.options,
                detector=config.detector(base.compiled.setup),
            )
            for base in self.bases
        ]
        self._seed, self._episode = 0, -1
        self._past: dict[int, SteppedFleets] = {}

    # ------------------------------------------------------------ an episode

    def next_episode(self, seed: int, episode: int) -> None:
        """Make the next ``reset`` begin episode number ``episode`` of ``seed``, as if the earlier ones had
        run.
        """
        self._seed, self._episode = seed, episode - 1

    def reset(self, seed: int | None = None) -> NDArray[np.float32]:
        """Begin the next episode of every fleet; with ``seed``, the first one of that seed."""
        if seed is not None:
            self._seed, self._episode = seed, -1
        self._episode += 1
        place = self._episode % len(self.bases)
        base, self.setup = self.bases[place], self._setups[place]
        self.episodes: list[DrawnEpisode] = [
            draw_episode(base, self.config.space, self._seed, fleet, self._episode, self.config.split)
            for fleet in self._fleet_numbers
        ]
        self.fleet_seeds = [fleet_seed(self._seed, fleet, self._episode) for fleet in self._fleet_numbers]
        scenarios = [episode.scenario for episode in self.episodes]
        self.fleets = SteppedFleets(scenarios, self.fleet_seeds, self._past.get(place))
        self._past[place] = self.fleets
        state = initial_state(self.setup, self.batch)
        self._terms = TermsOfTicks(base.compiled, base.shares, state.table, self.config.weights)
        rotation = np.ones((self.batch, len(self.setup.layout.replicas)), dtype=np.bool_)
        self._let_pass(state, RoutingPlan(table=state.table, in_rotation=rotation, version=state.version))
        return self.observation()

    def _let_pass(self, state: ControllerState, plan: RoutingPlan) -> RewardTerms:
        seen, fleets = self.fleets.advance(plan), self.fleets
        # Computed first, while the counters are in the cache.
        terms = self._terms.of(
            plan.table, fleets.counters, fleets.gauges, fleets.board, fleets.latency_counts
        )
        # Nothing else refers to the previous state, so its arrays are reused.
        self.perception: Perception = perceive(state, seen, self.setup, consume=True)
        return terms

    def observation(self) -> NDArray[np.float32]:
        """Float32 [B, size]: the controller's present observation, encoded."""
        return self.encoder.encode(self.perception.observation)

    def step(self, action: NDArray[np.floating]) -> Step:
        """Propose the tables of ``action`` [B, action_size] and advance one tick."""
        kernels, _, _ = self.setup.layout.shape
        return self.step_table(self.encoder.table(action, self.setup.fleet.home, kernels))

    def step_table(self, table: NDArray[np.float64]) -> Step:
        """Propose ``table`` float64 [B, S, K + 1] and advance one tick."""
        return self.step_proposal(_proposal(table, self.perception.observation))

    def step_proposal(self, proposal: Proposal) -> Step:
        """Take any policy's proposal for ``perception.observation`` and advance one tick."""
        if self.fleets.over:
            raise RuntimeError("step: the episode is over; reset comes first")
        state, decision = resolve(self.perception, proposal, {}, self.setup)
        terms = self._let_pass(state, decision.plan)
        delta = np.abs(decision.shield_delta).sum(axis=(1, 2))
        return Step(
            terms=terms,
            shielded=0.5 * delta / proposal.table.shape[1],
            over=self.fleets.over,
            decision=decision,
        )


def fleet_seed(seed: int, fleet: int, episode: int) -> int:
    """Seed of a fleet's own streams; different for every (seed, fleet, episode)."""
    mixed = np.random.SeedSequence([seed, fleet, episode]).generate_state(1, np.uint64)
    return int(mixed[0] >> np.uint64(1))


def _path(uri: str | Path) -> Path:
    return resolve_uri(str(uri), "selvage environment")


def _check_alike(bases: Sequence[Base]) -> None:
    first = bases[0].compiled
    for base in bases:
        mine = base.compiled
        if mine.contract.sha256 != first.contract.sha256 or mine.ticks != first.ticks:
            raise ValueError(
                f"scenarios: expected one contract and horizon, got {mine.name} beside {first.name}; "
                "give scenarios of one contract, and horizon_s"
            )
