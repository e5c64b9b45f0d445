"""Orders of failover targets."""

from __future__ import annotations

import numpy as np

from policies.rules.threshold import failover_order, preference
from tests.support.fleets.builders import make_fleet, make_layout
from tests.support.fleets.seen import calm

FLEET = make_fleet(make_layout(kernels=3, slices=2, per_kernel=2))
LOSS = np.array([[0.004, 0.001], [0.0, 0.002], [0.015, 0.0]])


def test_among_healthy_kernels_the_nearest_to_the_reference_comes_first() -> None:
    """Healthy kernels are in the order of their certified loss, slice by slice."""
    found = failover_order(calm(FLEET, certified_loss=LOSS))
    assert np.array_equal(found[0].argsort(axis=1), LOSS.T.argsort(axis=1))


def test_without_certified_losses_health_and_size_decide() -> None:
    """Where kernels were not measured, the order is ``preference``'s."""
    seen = calm(FLEET)
    assert np.array_equal(failover_order(seen), preference(seen, by_health=True))


def test_a_noncompliant_kernel_is_no_target_however_near_it_is() -> None:
    """A low certified loss does not open a kernel that the contract closes."""
    certified = np.ones((1, 3, 2), dtype=np.bool_)
    certified[0, 1, 0] = False
    found = failover_order(calm(FLEET, certified=certified, certified_loss=LOSS))
    assert np.isinf(found[0, 0, 1])
    assert np.isfinite(np.delete(found[0, 0], 1)).all()
