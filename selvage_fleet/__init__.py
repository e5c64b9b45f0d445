"""Selvage: keep a fleet of LLM servers inside a written kernel contract. This is the whole public interface.

::

    import selvage_fleet as selvage

    contract = selvage.load("package:contracts/library/serving-pool.yaml")
    verdict = selvage.judge(contract, "package:contracts/library/profiles/awq4.yaml").verdict
    record = selvage.run_episode("package:contracts/library/scenarios/silent-requantise.yaml", "sequential")

Everything else may move without notice. Names are imported when they are first used, so importing the
package costs nothing. Others add policies, faults, metrics and detectors by ``register_...``, or by entry
points of the groups ``selvage_fleet.policies``, ``.faults``, ``.metrics`` and ``.detectors``, which name the
module that registers them. ``selvage_fleet.environment`` is the environment for Gymnasium.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selvage_fleet.documents import Document, Evaluation, SelvageError, judge, load
    from selvage_fleet.episodes import (
        CompiledScenario,
        Controller,
        EpisodeRecord,
        export_sb3,
        load_policy,
        load_scenario,
        make_controller,
        run_episode,
    )
    from selvage_fleet.extending import (
        BeyondLimit,
        Channel,
        Detector,
        DetectorKind,
        Dose,
        FaultKind,
        FleetSetup,
        Observation,
        Parameter,
        Policy,
        PolicyKind,
        Proposal,
        Settings,
        WindowDetector,
        judging,
        register_detector,
        register_fault,
        register_metric,
        register_policy,
        weighing,
    )

__all__ = [
    "BeyondLimit",
    "Channel",
    "CompiledScenario",
    "Controller",
    "Detector",
    "DetectorKind",
    "Document",
    "Dose",
    "EpisodeRecord",
    "Evaluation",
    "FaultKind",
    "FleetSetup",
    "Observation",
    "Parameter",
    "Policy",
    "PolicyKind",
    "Proposal",
    "SelvageError",
    "Settings",
    "WindowDetector",
    "export_sb3",
    "judge",
    "judging",
    "load",
    "load_policy",
    "load_scenario",
    "make_controller",
    "register_detector",
    "register_fault",
    "register_metric",
    "register_policy",
    "run_episode",
    "weighing",
]

_DOCUMENTS = ("Document", "Evaluation", "SelvageError", "judge", "load")
_EPISODES = (
    "CompiledScenario",
    "Controller",
    "EpisodeRecord",
    "export_sb3",
    "load_policy",
    "load_scenario",
    "make_controller",
    "run_episode",
)


def __getattr__(name: str) -> Any:
    """The public ``name``, from the module that holds it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has: {', '.join(__all__)}")
    homes = {"documents": _DOCUMENTS, "episodes": _EPISODES}
    home = next((place for place, names in homes.items() if name in names), "extending")
    found = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
