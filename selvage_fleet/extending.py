"""Extension points: registration of policies, faults, metrics and detectors; re-exported by
``selvage_fleet``.

A registered policy, fault, metric or detector is known by its name in documents and on the command line.
"""

from __future__ import annotations

from contracts.metrics import register_metric
from contracts.plugins import Parameter
from controller.detect.detector import Detector
from controller.detect.registry import BeyondLimit, DetectorKind, judging, register_detector
from controller.detect.window import WindowDetector
from controller.fleet import FleetSetup
from controller.ports import Observation, Policy, Proposal
from faults.catalogue import Channel, Dose, FaultKind, register_fault
from policies.kinds import PolicyKind
from policies.registry import register_policy
from policies.spec import Settings
from policies.weighing import weighing

__all__ = [
    "BeyondLimit",
    "Channel",
    "Detector",
    "DetectorKind",
    "Dose",
    "FaultKind",
    "FleetSetup",
    "Observation",
    "Parameter",
    "Policy",
    "PolicyKind",
    "Proposal",
    "Settings",
    "WindowDetector",
    "judging",
    "register_detector",
    "register_fault",
    "register_metric",
    "register_policy",
    "weighing",
]
