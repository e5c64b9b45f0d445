"""Makes this project's policies and their detectors from settings: one function per kind."""

from __future__ import annotations

import numpy as np

from controller.detect.burn_rate import BurnRateDetector
from controller.detect.clauses import plan_clauses
from controller.detect.detector import Detector
from controller.detect.sequential.detector import SequentialDetector
from controller.detect.sequential.plan import SequentialSettings, sequential_plan
from controller.detect.traffic import shipped_traffic
from controller.fleet import FleetSetup
from controller.ports import Policy
from policies.parameters import COSTS, HEADROOM, PACE, PROGRAM
from policies.program.linear_program import LinearProgramPolicy, numeric_limit
from policies.program.model import Costs
from policies.rules.breaker import BreakerPolicy
from policies.rules.capacity import Headroom
from policies.rules.fixed import FixedPolicy, UniformPolicy
from policies.rules.hysteresis import HysteresisPolicy, ReturnPace
from policies.rules.informed import InformedPolicy, no_notices
from policies.rules.threshold import ThresholdPolicy
from policies.spec import Settings


def fixed(fleet: FleetSetup, policy_id: str, values: Settings) -> Policy:  # noqa: ARG001
    """Every slice at home."""
    return FixedPolicy(policy_id=policy_id)


def threshold(fleet: FleetSetup, policy_id: str, values: Settings) -> Policy:
    """Two thresholds on health, with immediate action."""
    kernels, slices, _ = fleet.layout.shape
    return ThresholdPolicy(
        policy_id=policy_id,
        kernels=kernels,
        slices=slices,
        priority=fleet.contract.priority,
        shed_when_uncertified=fleet.contract.shed_when_uncertified,
        guard_share=values["guard_share"],
        headroom=_headroom(values),
    )


def hysteresis(fleet: FleetSetup, policy_id: str, values: Settings) -> Policy:
    """Moves away at once and returns slowly."""
    kernels, slices, _ = fleet.layout.shape
    return HysteresisPolicy(
        policy_id=policy_id,
        kernels=kernels,
        slices=slices,
        priority=fleet.contract.priority,
        shed_when_uncertified=fleet.contract.shed_when_uncertified,
        pace=ReturnPace(**{name: values[name] for name in PACE}),
        headroom=_headroom(values),
    )


def linear_program(fleet: FleetSetup, policy_id: str, values: Settings) -> Policy:
    """The table with the least loss."""
    kernels, slices, _ = fleet.layout.shape
    loss = np.zeros((kernels, slices)) if fleet.quality_loss is None else fleet.quality_loss
    return LinearProgramPolicy(
        policy_id=policy_id,
        healthy_loss=loss,
        limit=numeric_limit(fleet.contract, fleet.layout.probe_metrics),
        priority=fleet.contract.priority,
        shed_when_uncertified=fleet.contract.shed_when_uncertified,
        costs=Costs(**{name: values[name] for name in COSTS}),
        **{name: values[name] for name in PROGRAM},
    )


def informed(fleet: FleetSetup, policy_id: str, values: Settings) -> Policy:
    """A policy that is told of every fault at a stated time."""
    kernels, slices, _ = fleet.layout.shape
    make = linear_program if values["program"] > 0.0 else threshold
    return InformedPolicy(
        policy_id=policy_id,
        notices=no_notices(slices) if values.notices is None else values.notices,
        planner=make(fleet, policy_id, values),
        kernels=kernels,
        slices=slices,
    )


def breaker(fleet: FleetSetup, policy_id: str, values: Settings) -> Policy:
    """Replicas ejected for HTTP failures."""
    count = int(values["consecutive_failures"])
    rest = {name: value for name, value in values.numbers.items() if name != "consecutive_failures"}
    return BreakerPolicy(
        policy_id=policy_id, replicas=len(fleet.layout.replicas), consecutive_failures=count, **rest
    )


def uniform(fleet: FleetSetup, policy_id: str, values: Settings) -> Policy:  # noqa: ARG001
    """Random proposals."""
    return UniformPolicy(policy_id=policy_id)


def _headroom(values: Settings) -> Headroom:
    return Headroom(**{name: values[name] for name in HEADROOM})


#: For clauses on traffic without a known healthy distribution. Assumed, not calibrated:
#: docs/detection-reference.md.
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


def burn_rate(fleet: FleetSetup, values: Settings) -> Detector:
    """Burn-rate alerts over several windows."""
    return BurnRateDetector(
        clauses=plan_clauses(fleet.contract),
        hour_s=values["hour_s"] or fleet.contract.window_s,
        least_observations=values["least_observations"],
    )
