"""What is logged offline: the scenarios that a URI names, and the shape of what a controller saw in logs.

Apart from the command line's module, because it compiles: who gives damaged logs hears of it at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from contracts.documents import Suite
from contracts.loading.loader import load_document
from contracts.loading.uris import resolve_uri
from controller.encoding.encoder import Encoder
from policies.learned.choosing import InputLayout
from policies.offline.transitions import Transitions
from scripts.e5.suite import expand_suite, load_suite
from simulator.env.base import load_base
from simulator.env.core import KERNELS_MAX
from simulator.env.randomise import draw_episode
from simulator.env.space import EpisodeSpace
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import compile_scenario, load_scenario


def layout_of(logs: Sequence[Transitions]) -> InputLayout:
    """What the observations of ``logs`` are made of."""
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
