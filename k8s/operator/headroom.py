"""Whether the known-good kernel can take the declared share of the usual load. Pure; decides nothing."""

from __future__ import annotations

import numpy as np

from controller.decision import Decision
from k8s.operator.conditions import ResourceCondition, condition
from k8s.operator.route_loop import RouteLoop

KIND = "KnownGoodHeadroom"


def headroom_conditions(loop: RouteLoop, decision: Decision) -> tuple[ResourceCondition, ...]:
    """One condition where the pool declares its headroom, else none.

    The usual load is what is offered, smoothed as moves are planned against; capacity is that of ready
    replicas in rotation. Messages have no number that drifts: each new one would be written.
    """
    ratio = loop.documents.pool.spec.known_good_headroom_ratio
    if ratio is None:
        return ()
    k, seen = loop.setup.layout.known_good, decision.observation
    offered_rps, ready = float(seen.offered_rps[0].sum()), int(seen.ready[0, k])
    share = f"{ratio:.0%} of the usual load"
    if not np.isfinite(offered_rps) or bool(decision.held[0]):
        told = f"nobody knows how much is offered, so nothing is said of {share}"
        return (condition(KIND, None, "LoadUnknown", told),)
    carried_rps = float(seen.capacity_rps[0, k]) if ready else 0.0
    return (_judged(carried_rps >= ratio * offered_rps, loop.setup.layout.kernels[k], ready, share),)


def _judged(enough: bool, kernel: str, ready: int, share: str) -> ResourceCondition:
    if enough:
        return condition(KIND, True, "Enough", f"ready replicas of {kernel} can take {share}")
    told = (
        f"{ready} ready replicas of {kernel}, the known-good kernel, cannot take {share}: a fallback would "
        "shed; add replicas of it, or lower spec.known_good_headroom_ratio"
    )
    return condition(KIND, False, "TooLittle", told)
