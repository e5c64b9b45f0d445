"""Detectors that others bring, by name: a policy is run on one with ``policy:detector=NAME``.

The project's own detectors need no name: each policy of its own says which one it stands on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from contracts.parameters import Parameter
from contracts.plugins import Registry
from controller.detect.detector import Detector
from controller.fleet import FleetSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorKind:
    """One registered detector.

    make: the detector for a fleet, given every parameter. parameters: numbers with their defaults, which a
    policy's text form sets beside its own.
    """

    make: Callable[[FleetSetup, Mapping[str, float]], Detector]
    description: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


#: Every registered detector by name; a plug-in's once it is asked for.
DETECTORS: Registry[DetectorKind] = Registry("selvage_fleet.detectors")


def register_detector(name: str, kind: DetectorKind) -> None:
    """Let policies stand on ``kind`` as ``detector=name``; ValueError where the name is taken."""
    DETECTORS.register(name, kind)


def detector_kind(name: str) -> DetectorKind:
    """The detector ``name``; ValueError lists the known ones."""
    if name not in DETECTORS:
        raise ValueError(f"unknown detector {name!r}; known: {', '.join(DETECTORS.known()) or 'none'}")
    return DETECTORS[name]
