"""The detector inside an environment: by default that which the shipped policies stand on."""

from __future__ import annotations

from functools import lru_cache

from contracts.loading.uris import resolve_uri
from controller.detect.detector import Detector
from controller.detect.sequential.detector import SequentialDetector
from controller.detect.sequential.plan import SequentialSettings, sequential_plan
from controller.detect.traffic import SHIPPED, TrafficCalibration, parse_traffic
from controller.fleet import FleetSetup


def as_driven(fleet: FleetSetup) -> Detector:
    """Sequential detectors as ``sequential`` and the shipped policy have them, calibrated as shipped."""
    return SequentialDetector(plan=sequential_plan(fleet, SequentialSettings(drift=True, traffic=_shipped())))


@lru_cache(maxsize=1)
def _shipped() -> TrafficCalibration:
    file = resolve_uri(SHIPPED, "selvage")
    return parse_traffic(file.read_text(), str(file))
