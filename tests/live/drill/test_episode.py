"""A live drill as the record that E5 scores: requests by their end, weights by the gateway."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from contracts.compiled.contract import FleetLayout
from contracts.documents import KernelContract
from contracts.loading.loader import load_as
from contracts.loading.uris import resolve_uri
from contracts.scoring.switches import measure_switches
from contracts.telemetry import ReplicaState
from live.drill.arrivals import arrivals
from live.drill.episode import Damage, Frame, episode_of, second_of
from live.drill.proofs import kl_limits
from live.load import LoadRecord
from live.ports import HostCounters, LiveReplica
from tests.support.fleets.drill_runs import drill_plan

LAYOUT = FleetLayout(
    kernels=("fast", "good"),
    slices=("code", "numbers"),
    replicas=("fast-0", "fast-1", "good-0"),
    replica_kernel=np.array([0, 0, 1], dtype=np.int64),
    probe_metrics=(),
    known_good=1,
)


def frame() -> Frame:
    """Two slices on the shipped contract."""
    contract = load_as(
        KernelContract, resolve_uri("package:contracts/library/serving-pool.yaml", "test")
    ).spec
    return Frame(
        plan=drill_plan(), layout=LAYOUT, contract=contract, policy="p", seed=1, homes=("fast", "good")
    )


def host(slice_name: str, replica: str, weight: int = 1) -> HostCounters:
    """An endpoint of the gateway."""
    return HostCounters(
        slice=slice_name,
        replica=replica,
        weight=weight,
        active=0,
        succeeded=0,
        failed=0,
        connect_failed=0,
        ejected=False,
    )


def replicas(*dead: str) -> tuple[LiveReplica, ...]:
    """All replicas, ``dead`` ones not serving."""
    return tuple(
        LiveReplica(
            name=name,
            kernel=name[:4],
            url="http://127.0.0.1:1",
            state=ReplicaState.DEAD if name in dead else ReplicaState.READY,
        )
        for name in LAYOUT.replicas
    )


def request(slice_name: str, replica: str, at_s: float, ms: float = 100.0, status: int = 200) -> LoadRecord:
    """One request that came at ``at_s``."""
    return LoadRecord(
        started_at_s=100.0 + at_s,
        slice=slice_name,
        streamed=False,
        status=status,
        complete=status == 200,
        begun=True,
        replica=replica,
        first_ms=ms,
        duration_ms=ms,
        error="",
    )


def test_weights_of_endpoints_become_shares_and_rotation() -> None:
    """A replica missing beside a listed peer is out; a silent gateway keeps its last weights."""
    hosts = (host("code", "fast-1", 3), host("code", "good-0", 1), host("numbers", "good-0"))
    seen = second_of(frame(), hosts, replicas(), None)
    assert seen.table.tolist() == [[0.75, 0.25, 0.0], [0.0, 1.0, 0.0]]
    assert seen.in_rotation.tolist() == [False, True, True]
    later = second_of(frame(), (), replicas("fast-1"), seen)
    assert later.table.tolist() == seen.table.tolist()
    assert later.in_rotation.tolist() == [False, False, True]


def test_requests_count_where_they_came_and_where_they_ended() -> None:
    """Offered, answered, failed and shed count in their seconds; a bad replica's answers are exposed."""
    hosts = (host("code", "fast-0"), host("numbers", "good-0"))
    here = frame()
    here.damages.append(
        Damage(
            strike=here.plan.strikes[0],
            replica=0,
            slices=np.array([True, True]),
            silent=True,
            tv_ratio=0.25,
            from_at_s=1.0,
            to_at_s=3.0,
        )
    )
    told = [
        request("code", "fast-0", 0.5),
        request("numbers", "fast-0", 1.2, ms=1500.0),
        request("code", "", 0.1, ms=2500.0, status=503),
        request("code", "", 1.1, status=429),
    ]
    found = episode_of(here, [second_of(here, hosts, replicas(), None)] * 4, told, 100.0)
    assert found.offered.tolist() == [[2, 0], [1, 1], [0, 0], [0, 0]]
    assert found.answered.sum(axis=1).tolist() == [1, 0, 1, 0]
    assert (found.failed[2, 0], found.shed[1, 0], found.exposed[2, 1]) == (1, 1, 1)
    assert found.excess_tv_tokens.sum() == 0.25 * here.plan.load.answer_tokens
    assert found.violating[:, 0, 0].tolist() == [False, True, True, False]
    assert found.incident is not None
    assert (found.incident.onset_at_s, found.incident.ends_at_s) == (1.0, 3.0)


def test_a_move_for_capacity_alone_is_no_false_switch() -> None:
    """The same move from a kernel that keeps its contract, as a move for capacity and without a reason."""
    here, home = frame(), (host("code", "fast-0"), host("numbers", "good-0"))
    moved = (host("code", "fast-0", 3), host("code", "good-0", 1), host("numbers", "good-0"))
    still = second_of(here, home, replicas(), None)
    gone = second_of(here, moved, replicas(), still)
    for told, counted in ((False, (1, 0)), (True, (0, 1))):
        later = replace(gone, for_capacity=np.array([told, False]))
        found = measure_switches(episode_of(here, [still] * 3 + [later] * 70, [], 100.0))
        assert (found.false_switches, found.capacity_moves) == counted


def test_the_contract_says_what_kl_is_too_much() -> None:
    """The hard clause of the slice numbers is the tighter one."""
    limits = kl_limits(frame().contract, ("code", "numbers"))
    assert limits[1] < limits[0] < 1.0


@pytest.mark.parametrize("seed", [0, 1])
def test_arrivals_follow_the_seed_and_a_surge_adds_to_them(seed: int) -> None:
    """Equal seeds give equal arrival times, in order and within the drill; a surge only adds requests."""
    plain, none = arrivals(drill_plan(), seed)
    assert none.size == 0
    assert np.array_equal(plain, arrivals(drill_plan(), seed)[0])
    assert np.all(np.diff(plain) >= 0.0)
    assert plain[-1] < drill_plan().latest_at_s
    surge = {"name": "more", "kind": "load_surge", "dose": 3.0, "onset_s": 20.0, "duration_s": 20.0}
    grown, extra = arrivals(drill_plan(faults=[surge]), seed)
    assert set(plain[plain < 60.0]) <= set(grown)
    assert extra.min() >= 20.0
    assert extra.max() < 40.0
    assert extra.size > 400
