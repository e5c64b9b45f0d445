"""Document models: frozen, strict pydantic models of the YAML, one module per kind.

A module is imported when one of its names is first used: building models takes time, and a command reads one
or two kinds. ``kind_called`` finds a kind by its name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from contracts.documents.envelope import API_VERSION, Document, FileRef, Label, Metadata, Strict

if TYPE_CHECKING:
    from contracts.documents.artifact import PolicyArtifact
    from contracts.documents.contract import Clause, ContractSpec, KernelContract, Slice
    from contracts.documents.drill import FaultDrill
    from contracts.documents.meta import MetaContract
    from contracts.documents.pool import KernelPool, PoolKernel, PoolSpec
    from contracts.documents.profile import KernelProfile, ProfileSpec
    from contracts.documents.promotion import KernelPromotion
    from contracts.documents.route import RoutePolicy
    from contracts.documents.scenario import Scenario, ScenarioSpec, ScheduledFault
    from contracts.documents.suite import Suite

    KINDS: tuple[type[Document], ...]

#: Every kind and the module that holds it, in the order of ``selvage contract schema``.
_KINDS = {
    "KernelContract": "contract",
    "KernelPool": "pool",
    "KernelProfile": "profile",
    "Scenario": "scenario",
    "FaultDrill": "drill",
    "RoutePolicy": "route",
    "PolicyArtifact": "artifact",
    "MetaContract": "meta",
    "Suite": "suite",
    "KernelPromotion": "promotion",
}
_PARTS = {
    "Clause": "contract",
    "ContractSpec": "contract",
    "Slice": "contract",
    "PoolKernel": "pool",
    "PoolSpec": "pool",
    "ProfileSpec": "profile",
    "ScenarioSpec": "scenario",
    "ScheduledFault": "scenario",
}
#: Names of all kinds; ``KINDS`` holds the models and imports all of them.
KIND_NAMES = tuple(_KINDS)

__all__ = [
    "API_VERSION",
    "KINDS",
    "KIND_NAMES",
    "Clause",
    "ContractSpec",
    "Document",
    "FaultDrill",
    "FileRef",
    "KernelContract",
    "KernelPool",
    "KernelProfile",
    "KernelPromotion",
    "Label",
    "MetaContract",
    "Metadata",
    "PolicyArtifact",
    "PoolKernel",
    "PoolSpec",
    "ProfileSpec",
    "RoutePolicy",
    "Scenario",
    "ScenarioSpec",
    "ScheduledFault",
    "Slice",
    "Strict",
    "Suite",
    "kind_called",
]


def kind_called(name: str) -> type[Document]:
    """The model of kind ``name``; KeyError if it is not in ``KIND_NAMES``."""
    found: type[Document] = getattr(import_module(f"{__name__}.{_KINDS[name]}"), name)
    return found


def __getattr__(name: str) -> Any:
    """The public ``name``, from the module that holds it."""
    home = _KINDS.get(name) or _PARTS.get(name)
    if name == "KINDS":
        found: Any = tuple(map(kind_called, KIND_NAMES))
    elif home is not None:
        found = getattr(import_module(f"{__name__}.{home}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found
