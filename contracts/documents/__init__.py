"""The documents: frozen strict models of the YAML, one module per kind."""

from __future__ import annotations

from contracts.documents.artifact import PolicyArtifact
from contracts.documents.contract import Clause, ContractSpec, KernelContract, Slice
from contracts.documents.drill import FaultDrill
from contracts.documents.envelope import API_VERSION, Document, FileRef, Label, Metadata, Strict
from contracts.documents.meta import MetaContract
from contracts.documents.pool import KernelPool, PoolKernel, PoolSpec
from contracts.documents.profile import KernelProfile, ProfileSpec
from contracts.documents.promotion import KernelPromotion
from contracts.documents.route import RoutePolicy
from contracts.documents.scenario import Scenario, ScenarioSpec, ScheduledFault
from contracts.documents.suite import Suite

#: Every kind, in the order of ``selvage contract schema``.
KINDS: tuple[type[Document], ...] = (
    KernelContract,
    KernelPool,
    KernelProfile,
    Scenario,
    FaultDrill,
    RoutePolicy,
    PolicyArtifact,
    MetaContract,
    Suite,
    KernelPromotion,
)

__all__ = [
    "API_VERSION",
    "KINDS",
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
]
