"""Policies, controllers and the fleets they drive: see ``selvage_fleet``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contracts.loading.files import write_pinned
from contracts.loading.uris import resolve_uri
from contracts.scoring.episode import EpisodeRecord
from controller.fleet import FleetSetup
from controller.loop import Controller
from controller.options import ControllerSetup
from controller.ports import Policy
from policies.artefacts import load_learned
from policies.registry import make_configuration
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import load_scenario as load_compiled

__all__ = [
    "CompiledScenario",
    "Controller",
    "EpisodeRecord",
    "export_sb3",
    "load_policy",
    "load_scenario",
    "make_controller",
    "run_episode",
]


def load_policy(uri: str | Path, fleet: FleetSetup) -> Policy:
    """The learned policy of the artefact at ``uri`` for ``fleet``; "" is the one that ships.

    Raises SelvageError (DocumentError) unless its certificate holds for this version.
    """
    return load_learned(str(uri), fleet)


def export_sb3(model: Any, path: Path | str) -> str:
    """Write the policy of a Stable-Baselines3 ``model`` (PPO, A2C) as an ONNX file; its sha256 (hex).

    ``gym:onnx=PATH`` names it wherever policies are named. Raises SelvageError for what is no plain network
    of dense layers.
    """
    # Here, because only an export needs onnx.
    from scripts.sb3 import bytes_of_model

    return write_pinned(Path(path), bytes_of_model(model))


def load_scenario(uri: str | Path) -> CompiledScenario:
    """The scenario at ``uri``, compiled with its pool, contract and profiles; ``.setup`` is its
    ``FleetSetup``.

    Raises SelvageError (DocumentError) for bad input.
    """
    return load_compiled(resolve_uri(str(uri), ""))


def make_controller(policy: str | Policy, fleet: FleetSetup, *, batch: int = 1) -> Controller:
    """A controller of ``batch`` fleets; each ``turn(source, actuator)`` reads telemetry and applies a plan.

    policy: its name with settings ("hysteresis:dwell_s=120"), which also selects its detector; or a
    ``Policy`` object, which runs with the window detector and the shield. Raises ValueError for an unknown
    name or setting.
    """
    return Controller(_setup(policy, fleet), batch=batch)


def run_episode(
    scenario: str | Path | CompiledScenario, policy: str | Policy = "hysteresis", *, seed: int = 0
) -> EpisodeRecord:
    """Simulate one episode of ``scenario`` under ``policy``; the record has the decisions and the ground
    truth.

    scenario: a path, a ``package:`` URI or a compiled scenario; policy: as for ``make_controller``. Equal
    arguments give equal records. Raises SelvageError (DocumentError) for bad input, ValueError for an unknown
    policy.
    """
    world = scenario if isinstance(scenario, CompiledScenario) else load_scenario(scenario)
    (record,) = run_episodes(world, ControllerDriver(_setup(policy, world.setup)), [seed])
    return record


def _setup(policy: str | Policy, fleet: FleetSetup) -> ControllerSetup:
    return (
        make_configuration(policy, fleet)
        if isinstance(policy, str)
        else ControllerSetup(fleet=fleet, policy=policy)
    )
