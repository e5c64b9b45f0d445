"""A certificate covers fleets whose facts lie within those of its suites, and no others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controller.fleet import FleetSetup
from policies.certify.coverage import LOAD, fleet_facts, outside, ranges, unknown
from policies.synthetic_fleet import synthetic_fleet
from tests.policies.certify.test_certificate import certificate

FLEET = synthetic_fleet(3, 2, 6)


def loosened(fleet: FleetSetup) -> FleetSetup:
    """The fleet judged by thresholds of ten times the size."""
    return replace(fleet, contract=replace(fleet.contract, threshold=10.0 * fleet.contract.threshold))


def slower(fleet: FleetSetup) -> FleetSetup:
    """The fleet with replicas declared to carry half."""
    return replace(fleet, capacity_rps=0.5 * fleet.capacity_rps)


def test_certified_fleets_are_covered() -> None:
    """Every fleet of the suites, and every one between them."""
    held = certificate(covers=ranges([fleet_facts(FLEET), fleet_facts(slower(FLEET))]))
    for fleet in (FLEET, slower(FLEET), replace(FLEET, capacity_rps=0.7 * FLEET.capacity_rps)):
        assert outside(held, fleet_facts(fleet)) == ()


@pytest.mark.parametrize(
    ("change", "said"), [(loosened, "threshold of"), (slower, "requests/s of a replica")]
)
def test_facts_outside_are_named(change: object, said: str) -> None:
    """A contract loosened after certification, or a slower profile, is reported with both ranges."""
    held = certificate(covers=ranges([fleet_facts(FLEET)]))
    assert callable(change)
    gaps = outside(held, fleet_facts(change(FLEET)))
    assert gaps
    assert all(gap.startswith(said) and "certified on" in gap for gap in gaps)


def test_measured_facts_may_lie_a_tenth_beyond() -> None:
    """Measured and declared numbers have a stated tolerance; thresholds have none."""
    held = certificate(covers=ranges([fleet_facts(FLEET)]))
    assert outside(held, fleet_facts(replace(FLEET, capacity_rps=1.09 * FLEET.capacity_rps))) == ()
    assert outside(held, fleet_facts(replace(FLEET, capacity_rps=1.11 * FLEET.capacity_rps)))
    contract = replace(FLEET.contract, threshold=1.01 * FLEET.contract.threshold)
    assert outside(held, fleet_facts(replace(FLEET, contract=contract)))


def test_a_fact_that_was_not_recorded_is_not_covered() -> None:
    """A clause that the suites' contract did not have is outside."""
    held = certificate(covers=ranges([fleet_facts(FLEET)])[1:])
    assert any("certified on nothing" in gap for gap in outside(held, fleet_facts(FLEET)))


def test_an_old_certificate_covers_no_facts() -> None:
    """Without ranges nothing is compared."""
    assert outside(certificate(), fleet_facts(loosened(FLEET))) == ()


def test_healthy_kernels_closer_to_a_threshold_are_outside() -> None:
    """The share of a threshold that certified healthy kernels use is a fact of the fleet."""
    shares = {name: ends for name, ends in fleet_facts(FLEET).items() if name.startswith("healthy share")}
    if FLEET.certified_observations is None:
        assert not shares
        units = np.full((*FLEET.layout.shape[:2], 4, len(FLEET.layout.probe_metrics)), 0.001)
    else:
        units = FLEET.certified_observations
    fleet = replace(FLEET, certified_observations=units)
    held = certificate(covers=ranges([fleet_facts(fleet)]))
    assert outside(held, fleet_facts(fleet)) == ()
    assert any(
        "healthy share" in gap
        for gap in outside(held, fleet_facts(replace(fleet, certified_observations=1.5 * units)))
    )


def with_replicas(each: int) -> FleetSetup:
    """The fleet with ``each`` replicas of every kernel."""
    kernels = len(FLEET.layout.kernels)
    owner = np.repeat(np.arange(kernels), each)
    names = tuple(f"r{place}" for place in range(len(owner)))
    return replace(FLEET, layout=replace(FLEET.layout, replicas=names, replica_kernel=owner, zones=()))


def test_a_fleet_may_grow_to_twice_its_size_and_not_shrink() -> None:
    """Scaling up keeps the policy in the seat; fewer replicas than certified are another fleet."""
    held = certificate(covers=ranges([fleet_facts(with_replicas(3))]))
    assert [bool(outside(held, fleet_facts(with_replicas(each)))) for each in (2, 3, 6, 7)] == [
        True,
        False,
        False,
        True,
    ]


def test_more_load_than_was_certified_is_outside_and_less_is_not() -> None:
    """A declared peak may lie a tenth above the busiest world of the suites, and any amount below."""
    held = certificate(covers=ranges([fleet_facts(FLEET, 0.3), fleet_facts(FLEET, 0.5)]))
    for load_ratio in (0.01, 0.3, 0.5, 0.549):
        assert outside(held, fleet_facts(FLEET, load_ratio)) == ()
    (gap,) = outside(held, fleet_facts(FLEET, 0.56))
    assert gap == f"{LOAD}: 0.56 to 0.56 here, certified on 0.3 to 0.5"


def test_undeclared_or_unrecorded_load_is_reported_and_replaces_no_policy() -> None:
    """An undeclared load, or a certificate from before loads were recorded, is not compared but reported."""
    held, old = (certificate(covers=ranges([fleet_facts(FLEET, load)])) for load in (0.5, None))
    assert outside(held, fleet_facts(FLEET)) == outside(old, fleet_facts(FLEET, 9.0)) == ()
    assert unknown(held, fleet_facts(FLEET, 0.5)) == ()
    assert "not declared here" in unknown(held, fleet_facts(FLEET))[0]
    assert "issue it again" in unknown(old, fleet_facts(FLEET, 0.5))[0]
    assert "issue it again" in unknown(certificate(), fleet_facts(FLEET))[0]
