"""What a kernel has is no reason to leave it, for every policy that plans with a share of a capacity."""

from __future__ import annotations

from controller.encoding.observe_pass import KEPT_MARGIN
from policies.learned.choosing import ROOM
from policies.program.model import Costs
from policies.rules.capacity import Headroom


def test_the_traffic_that_a_kernel_has_fits_what_is_planned_with() -> None:
    """A kernel that is said to carry ``KEPT_MARGIN`` times its traffic has room for it in every plan."""
    for fill_ratio in (ROOM.fill_ratio, Headroom().fill_ratio, Costs().fill_ratio):
        assert KEPT_MARGIN * fill_ratio >= 1.0
