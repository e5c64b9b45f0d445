"""A kernel's present traffic is no reason to leave it, for every policy that plans with capacity shares."""

from __future__ import annotations

from controller.encoding.observe_pass import KEPT_MARGIN
from policies.learned.choosing import ROOM
from policies.program.model import Costs
from policies.rules.capacity import Headroom


def test_the_present_traffic_of_a_kernel_fits_its_planned_share() -> None:
    """A kernel estimated at ``KEPT_MARGIN`` times its traffic has room for it in every plan."""
    for fill_ratio in (ROOM.fill_ratio, Headroom().fill_ratio, Costs().fill_ratio):
        assert KEPT_MARGIN * fill_ratio >= 1.0
