"""The detectors that the policies of this project stand on, made from a policy's settings."""

from __future__ import annotations

from functools import lru_cache

from contracts.loading.uris import resolve_uri
from controller.detect.burn_rate import BurnRateDetector
from controller.detect.clauses import plan_clauses
from controller.detect.detector import Detector
from controller.detect.sequential.detector import SequentialDetector
from controller.detect.sequential.plan import SequentialSettings, sequential_plan
from controller.detect.traffic import SHIPPED as SHIPPED_TRAFFIC
from controller.detect.traffic import TrafficCalibration, parse_traffic
from controller.fleet import FleetSetup
from policies.spec import Settings

#: Of clauses on traffic that no healthy law is known of. Stated, not calibrated: docs/detection-reference.md.
TRAFFIC_FACTOR = 14.0


def sequential(fleet: FleetSetup, values: Settings) -> Detector:
    """Sequential detectors within a budget of false switches."""
    settings = SequentialSettings(
        budget_per_slice_month=values["budget"] or None,
        confidence=values["confidence"],
        traffic_factor=values["traffic_factor"] or TRAFFIC_FACTOR,
        lowered_arl0=values["lowered_arl0"],
        spread=values["spread"] > 0.0,
        drift=values["drift"] > 0.0,
        prior=values["prior"] > 0.0,
        traffic=None if values["traffic_factor"] > 0.0 else shipped_traffic(),
    )
    return SequentialDetector(plan=sequential_plan(fleet, settings))


@lru_cache(maxsize=1)
def shipped_traffic() -> TrafficCalibration:
    """Calibrated thresholds of traffic clauses, as they ship; ``traffic_factor`` above 0 does without."""
    file = resolve_uri(SHIPPED_TRAFFIC, "selvage")
    return parse_traffic(file.read_text(), str(file))


def burn_rate(fleet: FleetSetup, values: Settings) -> Detector:
    """Burn-rate alerts over several windows."""
    return BurnRateDetector(
        clauses=plan_clauses(fleet.contract),
        hour_s=values["hour_s"] or fleet.contract.window_s,
        least_observations=values["least_observations"],
    )
