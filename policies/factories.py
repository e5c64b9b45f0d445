"""Policies of this project made from their settings: one function per kind."""

from __future__ import annotations

import numpy as np

from controller.fleet import FleetSetup
from controller.ports import Policy
from policies.parameters import COSTS, HEADROOM, PACE, PROGRAM
from policies.program.linear_program import LinearProgramPolicy, numeric_limit
from policies.program.model import Costs
from policies.rules.breaker import BreakerPolicy
from policies.rules.capacity import Headroom
from policies.rules.fixed import FixedPolicy
from policies.rules.hysteresis import HysteresisPolicy, ReturnPace
from policies.rules.informed import InformedPolicy, no_notices
from policies.rules.shield_alone import UniformPolicy
from policies.rules.threshold import ThresholdPolicy
from policies.spec import Settings


def fixed(fleet: FleetSetup, policy_id: str, values: Settings) -> Policy:  # noqa: ARG001
    """Every slice at home."""
    return FixedPolicy(policy_id=policy_id)


def threshold(fleet: FleetSetup, policy_id: str, values: Settings) -> Policy:
    """Two thresholds on health, acted on at once."""
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
    """Away at once, back slowly."""
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
    """The table that loses least."""
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
    """Told of every fault at a stated time."""
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
    """Proposals that know nothing."""
    return UniformPolicy(policy_id=policy_id)


def _headroom(values: Settings) -> Headroom:
    return Headroom(**{name: values[name] for name in HEADROOM})
