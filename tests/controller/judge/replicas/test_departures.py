"""The compiled comparison of peers follows its definition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from contracts.rng import stream
from controller.detect.clauses import zero_tolerance
from controller.detect.sums import COUNT, excess_of_sums
from controller.judge.replicas.departures import against_peers
from controller.options import ControllerSetup
from policies.rules.fixed import FixedPolicy
from tests.support.fleets.builders import make_fleet, make_layout


def peers(values: np.ndarray[Any, Any], owner: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """How many *other* replicas of the same kernel have the flag."""
    same = (owner[:, None] == owner[None, :]) & ~np.eye(len(owner), dtype=bool)
    return np.asarray(np.einsum("rq,bqsc->brsc", same.astype(int), values.astype(int)))


@pytest.mark.parametrize("seed", range(6))
def test_departures_follow_their_definition(seed: int) -> None:
    """A replica in alarm against most peers with observations departs; with some of them it stays."""
    setup = ControllerSetup(fleet=make_fleet(make_layout(per_kernel=4)), policy=FixedPolicy())
    owner, contract = setup.layout.replica_kernel, setup.contract
    rng = stream(seed, "peers")
    shape = (3, len(owner), len(contract.slices), len(contract.clause_ids))
    judged, window = (rng.integers(0, 3, (*shape, 4)).astype(float) for _ in range(2))
    severe, ready = rng.random(shape) < 0.3, rng.random(shape[:2]) < 0.8
    given = rng.random(shape) < 0.5 if seed % 2 else None
    case: Any = SimpleNamespace(
        verdicts=SimpleNamespace(replicas=SimpleNamespace(judged=judged, against=given)),
        estimate=SimpleNamespace(state=SimpleNamespace(window=window)),
        ready=ready,
        setup=setup,
        owner=owner,
        kernels=len(setup.layout.kernels),
    )
    _, departs, together = against_peers(severe, case)
    here = ready[:, :, None, None]
    alarmed = severe & here
    known = (judged[..., COUNT] > 0) | (zero_tolerance(contract) & (window[..., COUNT] > 0))
    witness = (known & here) | alarmed
    beyond = given if given is not None else excess_of_sums(judged, contract) > 0.0
    against = alarmed | (witness & beyond)
    others, others_against = peers(witness, owner), peers(against, owner)
    expected = alarmed & (2 * others_against < others)
    assert np.array_equal(departs, expected)
    assert np.array_equal(together, alarmed & ~expected & (others_against > 0))
    assert departs.any()
    assert together.any()
