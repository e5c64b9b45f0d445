"""An idle kernel in a failing zone is presumed to fail as the other kernels there do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from contracts.telemetry import Source
from controller.judge.kernels.capped import presumed_failing
from controller.judge.replicas.quarantine_pass import DEPARTS, ERRORS
from tests.support.fleets.builders import make_contract, make_layout

#: Kernels 0 and 1 serve, 2 and 3 are idle; half of 2 stands in the zone, none of 3.
LAYOUT = make_layout(kernels=4, slices=2, per_kernel=4)
ZONES = (*"nsns" * 3, *"ssss")
CONTRACT = make_contract(LAYOUT)
CLAUSES = len(CONTRACT.clause_ids)
FAILED = int(np.flatnonzero(CONTRACT.source == Source.FAILED)[0])
LIMIT = float(CONTRACT.rate_limit[FAILED])
ENOUGH = int(CONTRACT.min_samples)


def said(
    out: tuple[int, ...],
    share: float = 0.2,
    reason: int = ERRORS,
    shown: tuple[int, ...] = (),
    counted: int = 0,
    kept: tuple[int, ...] = (),
) -> list[tuple[int, int]]:
    """(kernel, slice) pairs presumed to fail, while the replicas ``out``, and those ``kept`` because they are
    needed, failed ``share`` of 100 attempts.

    The replicas ``shown`` failed none, and the gateway ``counted`` that many of kernel 2 on slice 1.
    """
    judged = np.zeros((1, 16, 2, CLAUSES, 4))
    judged[0, list(out + kept), 0, FAILED] = 100.0, *[100.0 * share] * 3
    judged[0, list(shown), 0, FAILED, 0] = 100.0
    away, needed = (np.isin(np.arange(16), some)[None] for some in (out, kept))
    condemned = np.zeros((1, 16, 2, CLAUSES), dtype=np.bool_)
    condemned[0, list(kept), 0, FAILED] = True
    known = np.zeros((1, 4, 2, CLAUSES, 4))
    known[0, 2, 1, FAILED, 0] = counted
    state: Any = SimpleNamespace(
        quarantined=away,
        quarantine_reason=np.where(away, reason, 0),
        needed=needed,
        replica_condemned=condemned,
    )
    case: Any = SimpleNamespace(
        setup=SimpleNamespace(contract=CONTRACT, layout=SimpleNamespace(zones=ZONES)),
        ready=np.ones((1, 16), dtype=np.bool_),
        verdicts=SimpleNamespace(replicas=SimpleNamespace(judged=judged)),
        owner=LAYOUT.replica_kernel,
        kernels=4,
    )
    found = presumed_failing(state, known, case)
    if found is None:
        return []
    assert not np.delete(found.alarm, FAILED, axis=3).any()
    assert (found.excess[found.alarm] > 0.0).all()
    return [(int(k), int(s)) for _, k, s, _ in np.argwhere(found.alarm)]


def test_an_idle_kernel_in_the_zone_fails_as_the_others_do() -> None:
    """On every slice that the gateway has not counted; the rest of the kernels that are out is elsewhere."""
    assert said((0, 2, 4, 6)) == [(2, 0), (2, 1)]
    assert said((0, 2, 4, 6), counted=ENOUGH) == [(2, 0)]


def test_it_is_presumed_as_well_where_the_others_are_kept_because_they_are_needed() -> None:
    """Of any that were seen to fail; an idle kernel is not clean because the fleet is short."""
    assert said((0, 2), kept=(4, 6)) == said((), kept=(0, 2, 4, 6)) == said((0, 2, 4, 6))
    assert said((0, 2), kept=(4, 5)) == []


def test_what_its_replicas_have_shown_takes_precedence() -> None:
    """Both replicas in the zone have answered: nothing is presumed."""
    assert said((0, 2, 4, 6), shown=(8, 10)) == []


@pytest.mark.parametrize("out", [(), (0, 2), (0, 4, 1), (1, 5, 0)])
def test_one_kernel_or_failures_elsewhere_do_not_make_a_failing_zone(out: tuple[int, ...]) -> None:
    """Nothing is presumed."""
    assert said(out) == []


def test_other_reasons_and_a_share_within_the_limit_presume_nothing() -> None:
    """With half of the kernel in the zone, a share just under twice the limit keeps it."""
    assert said((0, 2, 4, 6), reason=DEPARTS) == []
    assert said((0, 2, 4, 6), share=1.9 * LIMIT) == []
    assert said((0, 2, 4, 6), share=2.1 * LIMIT) == [(2, 0), (2, 1)]
