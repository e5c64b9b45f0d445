"""Logs of transitions for offline learning: observation, action and result of every tick, from simulated
incidents.

No ground truth is written: reward and cost are computed from telemetry, exactly as a live controller would
log them. The scenarios of a URI are resolved here and not in the command's module, because that compiles
code: damaged logs should be refused at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from contracts.documents import Suite
from contracts.loading.loader import load_document
from contracts.loading.uris import resolve_uri
from controller.decision import Decision
from controller.encoding.encoder import Encoder
from controller.encoding.features import ENCODING_VERSION
from controller.fleet import FleetSetup
from controller.options import ControllerSetup
from controller.ports import PolicyState
from controller.state import ControllerState
from policies.learned.choosing import Chooser, InputLayout
from policies.learned.exploring import CHOICE, LOG_PROBABILITY, ExploringPolicy, choice_of
from policies.offline.observed import observed_cost, observed_reward
from policies.offline.transitions import TransitionHeader, Transitions
from policies.registry import make_configuration
from policies.supervised import supervised_by_uri
from policies.train.world import padded
from scripts.e5.suite import expand_suite, load_suite
from simulator.drive import ControllerDriver
from simulator.env.base import load_base
from simulator.env.core import KERNELS_MAX
from simulator.env.randomise import draw_episode
from simulator.env.space import EpisodeSpace
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import compile_scenario, load_scenario

Floats = NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class TransitionRecorder:
    """Records the ticks of one batch of fleets; ``logs`` returns the episodes.

    chooser: gives the memory of past choices, as a learned policy would see it. world: as in the header.
    """

    setup: ControllerSetup
    chooser: Chooser
    world: str = "simulation"
    _last: Decision | None = None
    _memory: PolicyState = field(default_factory=dict)
    _observations: list[NDArray[np.float32]] = field(default_factory=list)  # each [B, N]
    _choices: list[NDArray[np.int64]] = field(default_factory=list)  # each [B, S]
    _probabilities: list[Floats] = field(default_factory=list)  # each [B]
    _rewards: list[Floats] = field(default_factory=list)  # each [B]
    _costs: list[Floats] = field(default_factory=list)  # each [B]

    def take(self, before: ControllerState, after: ControllerState, decision: Decision) -> None:  # noqa: ARG002 - the driver's protocol
        """One tick: the result of the last choice, and the present choice."""
        seen = decision.observation
        inputs, memory = self.chooser.look(seen, self._memory or self.chooser.initial(len(seen.now_s)))
        self._observations.append(inputs)
        if self._last is not None:
            self._rewards.append(observed_reward(self._last, decision, self.setup))
            self._costs.append(observed_cost(self._last, decision, self.setup))
        choice, probability = self._chosen(after, decision)
        _, self._memory = self.chooser.propose(choice, seen, memory)
        self._choices.append(choice)
        self._probabilities.append(probability)
        self._last = decision

    def _chosen(self, after: ControllerState, decision: Decision) -> tuple[NDArray[np.int64], Floats]:
        """Choices in a learned policy's numbering, shed after all padding; their log probability.

        While the policy is demoted they are the baseline's, which draws nothing.
        """
        known, by_baseline = CHOICE in after.policy, decision.demoted
        choice = after.policy[CHOICE].astype(np.int64) if known else choice_of(decision.proposed)
        if decision.baseline_proposed is not None:
            choice = np.where(by_baseline[:, None], choice_of(decision.baseline_proposed), choice)
        choice = padded(choice, self.chooser.kernels, self.chooser.layout)
        if known:
            return choice, np.where(by_baseline, 0.0, after.policy[LOG_PROBABILITY].astype(np.float64))
        return choice, np.full(len(choice), np.nan)

    def logs(self, episode: str, seeds: Sequence[int]) -> list[Transitions]:
        """One log per fleet; the last tick's choice has no outcome and is left out."""
        return [
            Transitions(
                header=self._header(episode, seed),
                observation=np.stack([row[b] for row in self._observations]),
                choice=np.stack([row[b] for row in self._choices[:-1]]),
                reward=np.array([row[b] for row in self._rewards]),
                cost=np.array([row[b] for row in self._costs]),
                log_probability=np.array([row[b] for row in self._probabilities[:-1]]),
            )
            for b, seed in enumerate(seeds)
        ]

    def _header(self, episode: str, seed: int) -> TransitionHeader:
        return TransitionHeader(
            world=self.world,
            episode=episode,
            policy_id=self.setup.policy.policy_id,
            seed=seed,
            reward_source="telemetry",
            encoding_version=ENCODING_VERSION,
            contract_sha256=self.setup.contract.sha256,
            tick_s=self.setup.fleet.tick_s,
            meta_contract_sha256=None if self.setup.meta is None else self.setup.meta.sha256,
        )


def record_incidents(
    scenario: CompiledScenario,
    spec: str,
    seeds: Sequence[int],
    rate: float,
    explore_seed: int = 0,
    meta: str = "",
) -> list[Transitions]:
    """Logs of ``scenario`` under the policy configuration ``spec``, with random actions at ``rate`` per slice
    and tick, and under the meta-contract at ``meta`` ("": not supervised).
    """
    setup = supervised_by_uri(meta, spec, make_configuration(spec, scenario.setup), "selvage offline record")
    if rate > 0.0:
        slices = len(scenario.contract.slices)
        exploring = ExploringPolicy(base=setup.policy, slices=slices, rate=rate, seed=explore_seed)
        setup = replace(setup, policy=exploring)
    recorder = TransitionRecorder(setup=setup, chooser=chooser_for(scenario.setup))
    run_episodes(scenario, ControllerDriver(setup, log=recorder.take), seeds, batch=max(1, len(seeds)))
    return recorder.logs(scenario.name, seeds)


def chooser_for(fleet: FleetSetup) -> Chooser:
    """The ``Chooser`` for actions on ``fleet``, for any driving policy."""
    kernels, slices, _ = fleet.layout.shape
    encoder = Encoder(kernels_max=KERNELS_MAX, slices=slices)
    return Chooser.of(encoder, kernels, fleet.home, fleet.contract)


def layout_of(logs: Sequence[Transitions]) -> InputLayout:
    """The layout of the observations in ``logs``."""
    return InputLayout(encoder=Encoder(kernels_max=KERNELS_MAX, slices=logs[0].choice.shape[1]))


def scenarios_of(text: str, drawn: int, seed: int) -> list[CompiledScenario]:
    """The scenario, or every scenario of the suite, that ``text`` names; or episodes drawn around it."""
    path = resolve_uri(text, "selvage offline")
    if drawn:
        base, space = load_base(path), EpisodeSpace()
        episodes = [draw_episode(base, space, seed, 0, number, "train") for number in range(drawn)]
        return [_named(episode.scenario, number) for number, episode in enumerate(episodes)]
    document = load_document(path)
    if not isinstance(document, Suite):
        return [load_scenario(path)]
    suite, file = load_suite(path)
    entries = expand_suite(suite, file)
    return [compile_scenario(entry.scenario(), entry.file) for entry in entries]


def _named(scenario: CompiledScenario, number: int) -> CompiledScenario:
    return replace(scenario, name=f"{scenario.name}-drawn{number:04d}")
